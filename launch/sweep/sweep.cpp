#include "launch/sweep/sweep.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "config/run_name.h"
#include "core/host.h"
#include "core/strings.h"
#include "io/file.h"
#include "launch/support/command.h"
#include "launch/support/program.h"
#include "report/page.h"

namespace tfm::launch {
namespace {

namespace fs = std::filesystem;

struct Key {
  std::string name;
  std::vector<std::string> values;
};

struct SweptRun {
  std::string name;  // of its folder, by its values
  fs::path folder;
  std::string config;  // YAML
  std::string state;   // what became of it
};

// "1,[2,3]" as 1 and [2,3]: commas in brackets and quotes separate no values.
std::vector<std::string> split_values(const std::string& text) {
  std::vector<std::string> values(1);
  int depth = 0;
  char quote = 0;
  for (const char c : text) {
    if (quote == 0 && (c == '\'' || c == '"'))
      quote = c;
    else if (c == quote)
      quote = 0;
    else if (quote == 0)
      depth += (c == '[' || c == '{') - (c == ']' || c == '}');
    if (c == ',' && depth == 0 && quote == 0)
      values.emplace_back();
    else
      values.back() += c;
  }
  return values;
}

std::vector<Key> keys_of(const Arguments& args) {
  std::vector<Key> keys;
  for (const std::string& argument : args.all("--sweep")) {
    const auto equals = argument.find('=');
    Key key{argument.substr(0, equals), {}};
    const auto fail = [&](const std::string& what) {
      throw Error(ExitCode::usage, "--sweep '" + argument + "': " + what);
    };
    if (equals == std::string::npos || equals == 0)
      fail("expected section.key=value,value,..., such as optimizer.lr=1e-3,3e-4");
    key.values = split_values(argument.substr(equals + 1));
    if (std::ranges::count(key.values, "") > 0) fail("a value is missing");
    if (std::ranges::find(keys, key.name, &Key::name) != keys.end()) fail("the key comes twice");
    for (const std::string& given : args.overrides())
      if (given.starts_with(key.name + "=")) fail("the key comes twice, also as " + given);
    for (const char* own : {"run.name", "checkpoint.dir", "metrics.jsonl"})
      if (key.name == own) fail("every run of a sweep gets its own " + std::string(own));
    keys.push_back(std::move(key));
  }
  return keys;
}

// The last part of the key's name, or all of it where another key ends alike.
std::string short_name(const std::vector<Key>& keys, const Key& key) {
  const auto last = [](const Key& k) { return k.name.substr(k.name.rfind('.') + 1); };
  const bool alone =
      std::ranges::count_if(keys, [&](const Key& other) { return last(other) == last(key); }) == 1;
  return alone ? last(key) : key.name;
}

// Beside the checkpoints of the run without a sweep, or its metrics.
fs::path folder_of(const config::Config& config) {
  for (const std::string& own : {config.checkpoint.dir, config.metrics.jsonl})
    if (const fs::path parent = (fs::path(own) / "").parent_path().parent_path(); !parent.empty())
      return parent / "sweep";
  return fs::path("runs") / config.run.name / "sweep";
}

// Every combination; the values of the last key change first.
std::vector<SweptRun> runs_of(const Arguments& args, const std::vector<Key>& keys) {
  const std::string& file = args.only("configuration file");
  const config::Config base = load_config(file, args.overrides());
  const fs::path folder = folder_of(base);
  const bool any_varies =
      std::ranges::any_of(keys, [](const Key& k) { return k.values.size() > 1; });
  std::size_t count = 1;
  for (const Key& key : keys) count *= key.values.size();
  std::vector<SweptRun> runs;
  for (std::size_t i = 0; i < count; ++i) {
    SweptRun run;
    std::vector<std::string> overrides = args.overrides();
    std::size_t block = count;
    for (const Key& key : keys) {
      block /= key.values.size();
      const std::string& value = key.values[i / block % key.values.size()];
      overrides.push_back(key.name + "=" + value);
      if (key.values.size() > 1 || !any_varies)
        run.name += (run.name.empty() ? "" : ",") + short_name(keys, key) + "=" + value;
    }
    run.name = config::as_run_name(run.name);
    run.folder = folder / run.name;
    if (std::ranges::find(runs, run.name, &SweptRun::name) != runs.end())
      throw Error(ExitCode::usage, "--sweep: two runs would have the name " + run.name +
                                       "; expected values that differ in letters and digits");
    config::Config config = load_config(file, overrides);
    config.run.name = config::as_run_name(base.run.name + "," + run.name);
    config.checkpoint.dir = run.folder / "checkpoints";
    config.metrics.jsonl = run.folder / "metrics.jsonl";
    if (!config.metrics.tensorboard.empty())
      config.metrics.tensorboard = run.folder / "tensorboard";
    run.config = config::dump_config(config);
    runs.push_back(std::move(run));
  }
  return runs;
}

std::string text_in(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string word_in(const fs::path& file) {
  std::string word;
  std::ifstream(file) >> word;
  return word;
}

// The exit code that an earlier start of the same run was done with; "": it is to run. NaN would
// come again; other failures may have been mended.
std::string exit_code_of(const SweptRun& run) {
  if (text_in(run.folder / "config.yaml") != run.config) return "";
  const std::string code = word_in(run.folder / "exit_code");
  return code == "0" || code == "5" ? code : "";
}

// What the run has written; nothing where it could not write its metrics.
report::Run metrics_of(const SweptRun& run) {
  return fs::exists(run.folder / "metrics.jsonl") ? report::read_run(run.folder.string())
                                                  : report::Run();
}

// False: the sweep itself was asked to stop.
bool run_one(SweptRun& run, const std::string& launcher) {
  const fs::path file = run.folder / "config.yaml", code = run.folder / "exit_code";
  fs::create_directories(run.folder);
  fs::remove(code);
  io::replace_file(file.string(), run.config);
  const fs::path program = fs::read_symlink("/proc/self/exe");
  const std::string command = shell_quoted(program.native()) + " " + shell_quoted(file.native());
  // The shell of a launcher outlives the signal by which a run saves and stops.
  const CommandEnd end = run_command(
      (launcher.empty() ? "exec " + command : "trap : USR2; " + launcher + " " + command) +
          " </dev/null",
      SIGUSR2);
  if (end.request != 0) return false;
  if (end.code == 0 && metrics_of(run).end == "request") {
    run.state = "stopped on request; the next start of the sweep continues it";
    return true;
  }
  io::replace_file(code.string(), std::to_string(end.code) + "\n");
  return true;
}

// What the runs came to; how many failed.
std::size_t print_results(std::vector<SweptRun>& runs) {
  std::size_t failed = 0;
  for (SweptRun& run : runs) {
    const std::string code = word_in(run.folder / "exit_code");
    if (!code.empty() && code != "0") {
      run.state = "failed with exit code " + code;
      ++failed;
    } else if (code == "0") {
      const report::Run read = metrics_of(run);
      run.state = printed("training loss %.4f", read.last("loss"));
      if (const auto at = read.evaluations.find("loss"); at != read.evaluations.end())
        run.state += printed(", validation loss %.4f", at->second.y.back());
    }
    std::printf("  %s: %s\n", run.name.c_str(), run.state.c_str());
  }
  return failed;
}

std::string write_report(const std::vector<SweptRun>& runs) {
  std::vector<std::string> folders;
  for (const SweptRun& run : runs)
    if (fs::exists(run.folder / "metrics.jsonl")) folders.push_back(run.folder.string());
  if (folders.empty()) return "";
  const std::string to = (runs[0].folder.parent_path() / "report.html").string();
  io::replace_file(to, report::page(report::read_runs(folders)));
  return to;
}

}  // namespace

bool is_swept(const std::string& word) {
  const auto equals = word.find('=');
  return equals != std::string::npos && split_values(word.substr(equals + 1)).size() > 1;
}

int run_sweep(const Arguments& args) {
  if (launched_by_mpi())
    throw Error(ExitCode::usage,
                "--sweep starts the ranks of each run itself; start it without a launcher, and "
                "give it that: --launcher \"mpirun -np 4\"");
  std::vector<SweptRun> runs = runs_of(args, keys_of(args));
  for (std::size_t i = 0; i < runs.size(); ++i) {
    SweptRun& run = runs[i];
    const std::string before = exit_code_of(run);
    std::printf("sweep: run %zu of %zu, %s%s\n", i + 1, runs.size(), run.name.c_str(),
                before.empty()  ? ""
                : before == "0" ? ": done before"
                                : ": failed before with exit code 5");
    std::fflush(stdout);
    if (!before.empty() || run_one(run, args.get("--launcher"))) continue;
    std::printf("sweep: stopped on request; start it again to continue\n");
    return 0;
  }
  std::printf("sweep: %s in %s\n", counted(std::ssize(runs), "run").c_str(),
              runs[0].folder.parent_path().c_str());
  const std::size_t failed = print_results(runs);
  if (const std::string report = write_report(runs); !report.empty())
    std::printf("sweep: report %s\n", report.c_str());
  if (failed > 0)
    throw Error(ExitCode::failed, std::to_string(failed) + " of " +
                                      counted(std::ssize(runs), "run") +
                                      " failed; start the sweep again to repeat those that may "
                                      "succeed");
  return 0;
}

}  // namespace tfm::launch
