// Exceptions of programs become messages and exit codes.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <new>
#include <thread>

#include "core/error.h"
#include "launch/support/guarded.h"
#include "support/data_files.h"

namespace tfm::launch {
namespace {

template <class Body>
int guarded_alone(Body&& body) {
  char name[] = "tfm-test";
  char* argv[] = {name, nullptr};
  return guarded(
      1, argv, "", [&](int, char**) { return body(), 0; }, Output::log, kEachByItself);
}

TEST(Guarded, AnExceptionIsAnExitCodeInEveryThread) {
  const auto lacks = [] { throw std::bad_alloc(); };
  const auto wrong = [] { throw Error(ExitCode::input, "file.txt: wrong"); };
  EXPECT_EXIT(std::_Exit(guarded_alone(lacks)), testing::ExitedWithCode(4), "not enough memory");
  EXPECT_EXIT(std::_Exit(guarded_alone(wrong)), testing::ExitedWithCode(3), "tfm-test: file.txt");
  EXPECT_EXIT(guarded_alone([&] { std::thread(lacks).join(); }), testing::ExitedWithCode(4),
              "not enough memory");
  EXPECT_EXIT(guarded_alone([&] { std::thread(wrong).join(); }), testing::ExitedWithCode(3),
              "tfm-test: file.txt");
}

// The exit code of a program in a process of its own, and what it wrote to standard error.
struct Ended {
  int code = -1;  // or minus the signal that ended it
  std::string err;
};
template <class Program>
Ended ended(Program&& program) {
  int err[2];
  EXPECT_EQ(::pipe(err), 0);
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(err[1], STDERR_FILENO);
    ::close(err[0]), ::close(err[1]);
    const int code = program();
    std::fflush(stderr);
    ::_exit(code);
  }
  ::close(err[1]);
  Ended e;
  char part[4096];
  for (ssize_t n; (n = ::read(err[0], part, sizeof part)) > 0;)
    e.err.append(part, static_cast<std::size_t>(n));
  ::close(err[0]);
  int status = 0;
  ::waitpid(pid, &status, 0);
  e.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return e;
}

// Supervisors start a program again at once upon 75 alone: not for what stays as it is.
TEST(Guarded, ErrorsOfTheFileSystemAreRetriedUnlessTheyStay) {
  namespace fs = std::filesystem;
  struct Case {
    std::errc error;
    int code;
  };
  using enum std::errc;
  for (const auto& [error, code] :
       {Case{filename_too_long, 3}, Case{permission_denied, 3}, Case{not_a_directory, 3},
        Case{no_such_file_or_directory, 3}, Case{too_many_symbolic_link_levels, 3},
        Case{no_space_on_device, 75}, Case{io_error, 75}, Case{too_many_files_open, 75},
        Case{device_or_resource_busy, 75}, Case{read_only_file_system, 75}}) {
    const std::error_code e = std::make_error_code(error);
    const Ended one = ended([&] {
      return guarded_alone([&] { throw fs::filesystem_error("cannot list", "some/file", e); });
    });
    EXPECT_EQ(one.code, code) << e.message();
    EXPECT_EQ(one.err, "tfm-test: some/file: " + e.message() + "\n");
    const Ended two = ended([&] {
      return guarded_alone([&] { throw fs::filesystem_error("cannot move", "from", "to", e); });
    });
    EXPECT_EQ(two.code, code) << e.message();
    for (const char* part : {"cannot move", "from", "to"})
      EXPECT_NE(two.err.find(part), std::string::npos) << two.err;
  }
  const auto code_of = [](auto&& thrown) {
    return ended([&] { return guarded_alone([&] { throw thrown; }); }).code;
  };
  EXPECT_EQ(code_of(std::system_error(std::make_error_code(resource_unavailable_try_again))), 75);
  EXPECT_EQ(code_of(std::runtime_error("anything else")), 1);
  for (const ExitCode c : {ExitCode::failed, ExitCode::usage, ExitCode::input,
                           ExitCode::environment, ExitCode::numerical, ExitCode::retryable})
    EXPECT_EQ(code_of(Error(c, "x")), static_cast<int>(c));
}

// A name that is too long, from a real call.
TEST(Guarded, ANameThatIsTooLongStaysTooLong) {
  const Ended e = ended([] {
    return guarded_alone([] { std::filesystem::create_directories(std::string(300, 'x')); });
  });
  EXPECT_EQ(e.code, 3) << e.err;
}

int run_with_output(const char* file, Output output, const char* option = nullptr) {
  char name[] = "folder/tfm-test";
  std::string word = option ? option : "";
  char* argv[] = {name, option ? word.data() : nullptr, nullptr};
  if (file ? !std::freopen(file, "w", stdout) : ::close(STDOUT_FILENO) != 0) return 99;
  return guarded(
      option ? 2 : 1, argv, "help\n",
      [](int, char**) {
        std::printf("result\n");
        return 0;
      },
      output, kEachByItself);
}

TEST(Guarded, ResultsThatCannotBeWrittenAreAnErrorAndALogIsNot) {
  test::TemporaryFolder folder;
  const auto code = [](auto&&... args) {
    return ended([&] { return run_with_output(args...); }).code;
  };
  EXPECT_EQ(code("/dev/full", Output::results), 75);
  EXPECT_EQ(code("/dev/full", Output::log), 0);
  EXPECT_EQ(code(nullptr, Output::results), 75) << "closed";
  EXPECT_EQ(code(nullptr, Output::log), 0);
  const std::string file = folder / "out";
  EXPECT_EQ(code(file.c_str(), Output::results), 0);
  EXPECT_EQ(test::get(file), "result\n");
  for (const char* option : {"--help", "-h", "--version"}) {
    EXPECT_EQ(code(file.c_str(), Output::log, option), 0);
    const std::string text = test::get(file);
    EXPECT_TRUE(std::string(option) == "--version" ? text.starts_with("tfm-test ")
                                                   : text == "help\n")
        << text;
    EXPECT_EQ(code("/dev/full", Output::log, option), 75) << option;
  }
}

// Files that are opened later do not take the numbers of closed streams.
TEST(Guarded, ClosedStreamsAreTakenByNothingElse) {
  const Ended e = ended([] {
    ::close(STDIN_FILENO), ::close(STDOUT_FILENO);
    return guarded_alone([] {
      const int fd = ::dup(STDERR_FILENO);
      if (fd <= STDERR_FILENO) throw Error(ExitCode::failed, "taken");
    });
  });
  EXPECT_EQ(e.code, 0) << e.err;
}

TEST(Guarded, SignalsOfWritesAreErrorsOfThem) {
  for (const Output output : {Output::log, Output::results}) {
    const auto raised = [&](int signal) {
      return ended([&] {
               char name[] = "tfm-test";
               char* argv[] = {name, nullptr};
               std::signal(SIGPIPE, SIG_DFL);
               return guarded(
                   1, argv, "", [&](int, char**) { return ::raise(signal); }, output,
                   kEachByItself);
             })
          .code;
    };
    EXPECT_EQ(raised(SIGXFSZ), 0);
    EXPECT_EQ(raised(SIGPIPE), output == Output::log ? 0 : -SIGPIPE);
  }
}

TEST(Guarded, RanksWithoutWorkLeaveItToTheFirst) {
  for (const char* rank : {"0", "1", "2"})
    for (const bool alone : {true, false}) {
      const Ended e = ended([&] {
        char name[] = "tfm-test";
        char* argv[] = {name, nullptr};
        ::setenv("OMPI_COMM_WORLD_RANK", rank, 1);
        ::setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
        return guarded(
            1, argv, "", [](int, char**) { return 7; }, Output::log,
            alone ? kFirstRankAlone : kEachByItself);
      });
      EXPECT_EQ(e.code, alone && *rank != '0' ? 0 : 7) << rank;
      EXPECT_EQ(e.err, alone && *rank == '1' ? "tfm-test: rank 0 alone does the work\n" : "");
    }
}

}  // namespace
}  // namespace tfm::launch
