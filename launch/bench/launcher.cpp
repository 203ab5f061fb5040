#include "launch/bench/launcher.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <numeric>

#include "comm/links.h"
#include "core/strings.h"
#include "launch/support/command.h"

namespace tfm::launch {
namespace {

namespace fs = std::filesystem;

std::string run_of(int ranks) { return "the run with " + counted(ranks, "rank"); }

[[noreturn]] void fail(int ranks, int code, const std::string& command) {
  const bool missing = code == 126 || code == 127;  // as shells have it
  ExitCode exit = missing ? ExitCode::environment : ExitCode::failed;
  for (const ExitCode known : {ExitCode::usage, ExitCode::input, ExitCode::environment,
                               ExitCode::numerical, ExitCode::retryable})
    if (code == static_cast<int>(known)) exit = known;
  throw Error(
      exit,
      run_of(ranks) + (missing ? " could not be started: " : " failed, as said above: ") + command);
}

}  // namespace

Launcher::Launcher(const Arguments& args) {
  const bool given = args.has("--launcher");
  const bool open_mpi = comm::mpi_version().starts_with("Open MPI");
  command_ = given ? args.get("--launcher")
                   : std::string("mpirun ") + (open_mpi ? "--oversubscribe --bind-to none " : "") +
                         "-np " + kRanks;
  if (command_.find(kRanks) == std::string::npos)
    throw Error(ExitCode::usage, "--launcher '" + command_ + "': " + kRanks +
                                     " is missing, which stands for the number of ranks; expected "
                                     "a command such as \"srun -n {ranks}\"");
  setenv("OMP_NUM_THREADS", "1", 0);
  if (!given && geteuid() == 0)
    for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"})
      setenv(name, "1", 1);
  // A launcher may start ranks on other hosts, which share the working directory.
  std::error_code none;
  const fs::path parent = given ? fs::current_path() : fs::temp_directory_path(none);
  if (none)
    throw Error(ExitCode::environment,
                "TMPDIR: " + none.message() + "; expected the path of a folder");
  std::string folder = (parent / "tfm-bench-XXXXXX").string();
  if (!mkdtemp(folder.data()))
    throw Error(ExitCode::environment, folder + " cannot be made: " + errno_text());
  folder_ = folder;
}

Launcher::~Launcher() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

MeasuredRun Launcher::run(config::Config config, int ranks, std::int64_t warmup) const {
  const fs::path file = folder_ / "run.yaml",
                 program = fs::read_symlink("/proc/self/exe").parent_path() / "tfm-train";
  config.metrics = {.jsonl = (folder_ / "metrics.jsonl").string()};
  fs::remove(config.metrics.jsonl);
  write_text(file, config::dump_config(config));
  const std::string number = std::to_string(ranks);
  std::string command = command_;
  for (std::size_t at = 0; (at = command.find(kRanks, at)) != std::string::npos;)
    command.replace(at, std::string_view(kRanks).size(), number), at += number.size();
  command += " " + shell_quoted(program.native()) + " " + shell_quoted(file.native());
  const CommandEnd end = run_command(command + " </dev/null >/dev/null");
  if (end.request != 0)
    throw Error(ExitCode::failed, std::string("ended by ") + strsignal(end.request));
  if (end.code != 0) fail(ranks, end.code, command);
  return read(ranks, warmup);
}

MeasuredRun Launcher::read(int ranks, std::int64_t warmup) const {
  const fs::path file = folder_ / "metrics.jsonl";
  std::ifstream in(file);
  MeasuredRun run;
  std::vector<double> seconds, tokens;
  for (std::string line; std::getline(in, line);) {
    const auto e = nlohmann::ordered_json::parse(line);
    if (e["event"] == "start") {
      if (e["world"] != ranks)
        throw Error(ExitCode::environment,
                    run_of(ranks) + " had " + e["world"].dump() +
                        "; the launcher starts another number, or belongs to another MPI");
      run.host = e["host"];
    } else if (e["event"] == "step" && e["step"].get<std::int64_t>() > warmup) {
      seconds.push_back(e["step_seconds"]);
      tokens.push_back(e["tokens"]);
    }
  }
  if (seconds.empty())
    throw Error(ExitCode::environment, run_of(ranks) + " wrote no steps to " + file.string() +
                                           ", which its rank 0 must share with this program");
  run.step_seconds = median(seconds);
  run.tokens_per_step =
      std::accumulate(tokens.begin(), tokens.end(), 0.0) / static_cast<double>(tokens.size());
  return run;
}

}  // namespace tfm::launch
