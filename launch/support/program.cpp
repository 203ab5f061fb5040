#include "launch/support/program.h"

#include <fcntl.h>
#include <omp.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "comm/failure.h"
#include "core/strings.h"
#include "core/version.h"
#include "inference/initial_weights.h"
#include "launch/support/device_choice.h"
#include "launch/support/settings.h"
#include "plan/step_plan.h"
#include "telemetry/live_line.h"
#include "train/stop_requests.h"

namespace tfm::launch {
namespace {

// What would end a process without a word, or write its log into another file.
void prepare_process(Output output) {
  // Files that are opened later would take the numbers of closed streams.
  for (int fd = ::open("/dev/null", O_RDWR); fd >= 0; fd = ::open("/dev/null", O_RDWR))
    if (fd > STDERR_FILENO) {
      ::close(fd);
      break;
    }
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of the write
  if (output == Output::log) std::signal(SIGPIPE, SIG_IGN);  // the work goes on without its log
}

[[noreturn]] void bad_option(const std::string& text) {
  throw Error(ExitCode::usage, text + "; see --help");
}

}  // namespace

Arguments::Arguments(int argc, char** argv, const std::vector<OptionSpec>& known) {
  std::vector<std::string_view> names;
  for (const OptionSpec& o : known) names.push_back(o.name);
  for (int i = 1; i < argc; ++i) {
    std::string arg = argv[i], inline_value;
    if (arg.rfind("--", 0) != 0) {
      std::error_code ignored;
      const bool override_form = arg.find('=') != std::string::npos &&
                                 arg.find('/') > arg.find('=') &&
                                 (!positional_.empty() || !std::filesystem::exists(arg, ignored));
      (override_form ? overrides_ : positional_).push_back(arg);
      continue;
    }
    const auto equals = arg.find('=');
    if (equals != std::string::npos) inline_value = arg.substr(equals + 1), arg.resize(equals);
    const auto spec = std::find_if(known.begin(), known.end(),
                                   [&](const OptionSpec& o) { return o.name == arg; });
    if (spec == known.end()) {
      const std::string near(nearest(arg, names));
      bad_option("unknown option '" + arg + "'" +
                 (near.empty() ? "" : "; did you mean '" + near + "'?"));
    }
    if (!spec->value && equals != std::string::npos) bad_option(arg + " does not take a value");
    if (spec->value && equals == std::string::npos) {
      if (i + 1 >= argc) bad_option(arg + " needs a value");
      inline_value = argv[++i];
    }
    options_[arg] = inline_value;
  }
}

std::string Arguments::get(const std::string& option, const std::string& fallback) const {
  const auto it = options_.find(option);
  return it == options_.end() ? fallback : it->second;
}

std::int64_t Arguments::integer(const std::string& option, std::int64_t fallback,
                                std::int64_t least, std::int64_t most) const {
  if (!has(option)) return fallback;
  char* end = nullptr;
  const std::string text = get(option);
  errno = 0;
  const long long v = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != 0 || errno == ERANGE || v < least || v > most)
    bad_option(option + " '" + text + "': expected a whole number of at least " +
               std::to_string(least) + " and at most " + std::to_string(most));
  return v;
}

double Arguments::real(const std::string& option, double fallback) const {
  if (!has(option)) return fallback;
  char* end = nullptr;
  const std::string text = get(option);
  const double v = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != 0 || !(v >= 0))
    bad_option(option + " '" + text + "': expected a number of at least 0");
  return v;
}

const std::string& Arguments::only(const std::string& what) const {
  if (positional_.size() != 1)
    bad_option("expected one " + what + ", got " + std::to_string(positional_.size()) +
               (positional_.size() > 1 ? " ('" + positional_[1] + "')" : ""));
  return positional_[0];
}

void Arguments::check_outputs(const std::vector<std::string>& options) const {
  if (rank_of_launch() != 0) return;
  for (const std::string& option : options) {
    if (!has(option)) continue;
    std::error_code ignored;
    const bool there = std::filesystem::exists(get(option), ignored);
    if (!std::ofstream(get(option), std::ios::app))
      throw Error(ExitCode::usage, option + " '" + get(option) + "' cannot be written");
    if (!there) std::filesystem::remove(get(option), ignored);
  }
}

config::Config load_config(const std::string& path, const std::vector<std::string>& overrides) {
  return config::load_config(path, overrides, inference::config_of_directory);
}

int guarded(int argc, char** argv, const std::string& help,
            const std::function<int(int, char**)>& body, Output output, Workers workers) {
  const std::string program = std::string(argv[0]).substr(std::string(argv[0]).rfind('/') + 1);
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option != "--help" && option != "--version") continue;
    std::fputs((option == "--help" ? help : program + " " + std::string(version) + "\n").c_str(),
               stdout);
    if (std::fflush(stdout) == 0) return 0;
    std::fprintf(stderr, "%s: standard output cannot be written: %s\n", program.c_str(),
                 errno_text().c_str());
    return static_cast<int>(ExitCode::retryable);
  }
  if (workers == Workers::first_rank && rank_of_launch() != 0) {
    if (rank_of_launch() == 1)
      std::fprintf(stderr, "%s: rank 0 alone does the work\n", program.c_str());
    return 0;
  }
  prepare_process(output);
  train::die_with_parent();
  if (rank_of_launch() == 0) telemetry::show_progress();
  const auto fail = [&](int code, const char* what) {
    const std::string message = program + ": " + what;
    if (workers == Workers::all_ranks && launched_by_mpi()) comm::fail_job(code, message);
    std::fflush(stdout);
    std::fprintf(stderr, "%s\n", message.c_str());
    return code;
  };
  try {
    const int code = body(argc, argv);
    if (output == Output::results && (std::fflush(stdout) != 0 || std::ferror(stdout)))
      throw Error(ExitCode::retryable, "standard output cannot be written: " + errno_text());
    return code;
  } catch (const Error& e) {
    return fail(static_cast<int>(e.code()), e.what());
  } catch (const std::bad_alloc&) {
    return fail(static_cast<int>(ExitCode::environment),
                "the machine has not enough memory; use a smaller model or batch, or more ranks");
  } catch (const std::filesystem::filesystem_error& e) {
    const std::errc lasting[] = {std::errc::filename_too_long, std::errc::permission_denied,
                                 std::errc::not_a_directory, std::errc::no_such_file_or_directory,
                                 std::errc::too_many_symbolic_link_levels};
    const bool lasts =
        std::ranges::any_of(lasting, [&](std::errc known) { return e.code() == known; });
    return fail(static_cast<int>(lasts ? ExitCode::input : ExitCode::retryable), e.what());
  } catch (const std::system_error& e) {  // of a thread
    return fail(static_cast<int>(ExitCode::retryable), e.what());
  } catch (const std::exception& e) {
    return fail(static_cast<int>(ExitCode::failed), e.what());
  }
}

Launch::Launch(bool check, double timeout) : cores_at_start_(omp_get_num_procs()) {
  if (launched_by_mpi()) {
    session.emplace(timeout > 0 ? timeout : comm::kStartTimeout);
    ranks = session->size();
    // Before anything else: other programs would take part in other collectives next.
    if (check) check_same_settings(*session, {host_name(), build_id(false), "", ""});
  }
  node_ = cpus_of_node();
  take_cores_near("");
  if (check && !cores.warning.empty()) std::fprintf(stderr, "warning: %s\n", cores.warning.c_str());
}

void Launch::take_cores_near(const std::string& gpu) {
  give_way_.reset();
  cores = take_cores(session ? &*session : nullptr, node_, gpu);
  if (cores.threads > 1 && !wait_policy_is_set()) give_way_.emplace(cores.threads, cores_at_start_);
}

void Launch::take_cores_near_gpus() {
  take_cores_near(device::Device::bus_id(session ? session->local_rank() : 0));
}

std::vector<std::string> Launch::gather(const std::string& text) const {
  if (!session) return {text};
  return session->gather(text, comm::MpiSession::Scope::job);
}

void Launch::check_same(const config::Config& config) const {
  if (session) check_same_settings(*session, settings_of_rank(&config));
}

device::Device Launch::device(const config::Config& config) const {
  return config.device == config::DeviceKind::cuda
             ? device::Device::gpu(
                   session ? session->local_rank() : 0, threads(),
                   {config.tf32, config.numerics == config::Numerics::deterministic})
             : device::Device::cpu(threads());
}

comm::Mesh Launch::mesh(comm::Layout layout) const {
  if (session) return comm::make_mesh(*session, layout);
  return comm::single_mesh();
}

comm::RankContext Launch::rank_context(const config::Config& config) {
  config::Config chosen = config;
  choose_device(*this, chosen);
  check_same(chosen);
  return comm::rank_context(device(chosen), mesh(config::layout_of(chosen)),
                            plan::mesh_options(chosen));
}

}  // namespace tfm::launch
