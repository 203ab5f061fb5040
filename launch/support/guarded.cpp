#include "launch/support/guarded.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <new>
#include <utility>

#include "core/error.h"
#include "core/host.h"
#include "core/strings.h"
#include "core/version.h"
#include "telemetry/live_line.h"

namespace tfm::launch {
namespace {

// What would end a process without a word, or write its log into another file.
void prepare_process(Output output) {
  // Files that are opened later would take the numbers of closed streams. open() takes the lowest.
  const auto keep = [](int stream, int flags) {
    if (::fcntl(stream, F_GETFD) < 0) ::open("/dev/null", flags);
  };
  keep(STDIN_FILENO, O_RDWR);
  keep(STDOUT_FILENO,
       output == Output::results ? O_RDONLY : O_RDWR);  // results are not lost unsaid
  keep(STDERR_FILENO, O_RDWR);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of the write
  if (output == Output::log) std::signal(SIGPIPE, SIG_IGN);  // the work goes on without its log
}

// Exit code and text of the exception that is being handled.
std::pair<ExitCode, std::string> described() {
  try {
    throw;
  } catch (const Error& e) {
    return {e.code(), e.what()};
  } catch (const std::bad_alloc&) {
    return {ExitCode::environment,
            "the machine has not enough memory; use a smaller model or batch, or more ranks"};
  } catch (const std::filesystem::filesystem_error& e) {
    const std::errc lasting[] = {std::errc::filename_too_long, std::errc::permission_denied,
                                 std::errc::not_a_directory, std::errc::no_such_file_or_directory,
                                 std::errc::too_many_symbolic_link_levels};
    const bool lasts =
        std::ranges::any_of(lasting, [&](std::errc known) { return e.code() == known; });
    const std::string path = e.path1().string();
    return {lasts ? ExitCode::input : ExitCode::retryable,
            path.empty() || !e.path2().empty() ? e.what() : path + ": " + e.code().message()};
  } catch (const std::system_error& e) {  // of a thread
    return {ExitCode::retryable, e.what()};
  } catch (const std::exception& e) {
    return {ExitCode::failed, e.what()};
  }
}

std::function<int()> fail;  // says what described() is, and returns the exit code

// Of a thread whose exception nobody catches, as one of a team that gets no memory.
[[noreturn]] void at_terminate() {
  if (std::current_exception()) std::_Exit(fail());
  std::abort();
}

}  // namespace

int guarded(int argc, char** argv, const std::string& help,
            const std::function<int(int, char**)>& body, Output output, const Job& job) {
  const std::string program = std::string(argv[0]).substr(std::string(argv[0]).rfind('/') + 1);
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const bool asks_help = option == "--help" || option == "-h";
    if (!asks_help && option != "--version") continue;
    std::fputs((asks_help ? help : program + " " + std::string(version) + "\n").c_str(), stdout);
    if (std::fflush(stdout) == 0) return 0;
    std::fprintf(stderr, "%s: standard output cannot be written: %s\n", program.c_str(),
                 errno_text().c_str());
    return static_cast<int>(ExitCode::retryable);
  }
  if (!job.end && rank_of_launch() != 0) {
    if (rank_of_launch() == 1)
      std::fprintf(stderr, "%s: rank 0 alone does the work\n", program.c_str());
    return 0;
  }
  if (job.start) job.start(argv);
  prepare_process(output);
  die_with_parent();
  if (rank_of_launch() == 0) telemetry::show_progress();
  fail = [=, end = job.end] {
    const auto [code, what] = described();
    const std::string message = program + ": " + what;
    if (end && launched_by_mpi()) end(static_cast<int>(code), message);
    std::fflush(stdout);
    std::fprintf(stderr, "%s\n", message.c_str());
    return static_cast<int>(code);
  };
  std::set_terminate(at_terminate);
  try {
    const int code = body(argc, argv);
    if (output == Output::results && (std::fflush(stdout) != 0 || std::ferror(stdout)))
      throw Error(ExitCode::retryable, "standard output cannot be written: " + errno_text());
    return code;
  } catch (...) {
    return fail();
  }
}

}  // namespace tfm::launch
