// What a run reads and writes: the checkpoint directory, data, metrics.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "checkpoint/lock.h"
#include "checkpoint/manifest.h"
#include "core/strings.h"
#include "data/run_data.h"
#include "io/file.h"
#include "io/glob.h"
#include "launch/doctor/doctor.h"
#include "plan/checkpoint_size.h"
#include "telemetry/metrics_log.h"
#include "telemetry/metrics_server.h"
#include "train/start.h"

namespace tfm::launch {
namespace {

namespace fs = std::filesystem;

// A directory that is made for a check; what was made is removed again.
class TrialDirectory {
 public:
  explicit TrialDirectory(const std::string& dir) {
    for (fs::path p = fs::absolute(dir).lexically_normal(); !p.empty() && !fs::exists(p);
         p = p.parent_path())
      made_.push_back(p);
    std::error_code error;
    fs::create_directories(dir, error);
    if (error) throw Error(ExitCode::environment, dir + ": cannot be created: " + error.message());
  }
  ~TrialDirectory() {
    std::error_code ignored;
    for (const fs::path& p : made_) fs::remove(p, ignored);  // only where it is empty
  }
  TrialDirectory(const TrialDirectory&) = delete;
  TrialDirectory& operator=(const TrialDirectory&) = delete;

 private:
  std::vector<fs::path> made_;  // innermost first
};

// Appends nothing to a file that is there, or makes it and removes it again. Does not wait for the
// reader of a pipe.
void try_file(const std::string& path) {
  const bool there = fs::exists(path);
  const int fd = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644);
  if (fd < 0) throw Error(ExitCode::environment, path + ": cannot be written: " + errno_text());
  const bool taken = ::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;  // as runs do
  ::close(fd);
  if (!there) ::unlink(path.c_str());
  if (taken) throw Error(ExitCode::environment, path + ": another run is writing it");
}

// Writes a small file to the end and removes it.
void try_writing(const std::string& path) {
  const auto remove = [&](const void*) { ::unlink(path.c_str()); };
  const std::unique_ptr<const void, decltype(remove)> last(&path, remove);
  io::replace_file(path, std::string(4096, 'x'));
}

// What `check` reports of the files that this rank sees.
template <class F>
std::optional<Error> problems_of(const config::Config& config, F&& check) {
  return error_of([&] {
    config::Problems problems(config.places);
    check(problems);
    problems.throw_if_any();
  });
}

std::int64_t sum(const std::vector<double>& values) {
  double total = 0;
  for (const double v : values) total += v;
  return static_cast<std::int64_t>(total);
}

// Checkpoints that are to come on top of those that lie there.
std::int64_t checkpoints_to_come(const config::Config& config, std::int64_t there) {
  const config::CheckpointConfig& c = config.checkpoint;
  const std::int64_t written = c.every > 0 ? ceil_div(config.train.steps, c.every) : 1;
  if (c.keep <= 0) return written;
  const std::int64_t kept = std::max<std::int64_t>(c.keep, 2) + 1;  // one while it replaces another
  return std::min(written, std::max<std::int64_t>(kept - there, 1));
}

// Room for the checkpoints that stay, on rank 0.
std::optional<Error> check_room(const Examination& e, const config::Config& config,
                                const std::string& dir, std::int64_t bytes) {
  const std::int64_t count = checkpoints_to_come(config, checkpoint::count_steps(dir));
  const auto available = static_cast<std::int64_t>(fs::space(dir).available);
  e.findings.measured["checkpoint"] = {
      {"bytes", bytes}, {"to_come", count}, {"available", available}};
  if (count * bytes <= available) return {};
  return Error(ExitCode::environment,
               dir + ": " + std::to_string(available) + " bytes are free, but " +
                   counted(count, "checkpoint") + " of " + std::to_string(bytes) +
                   " bytes are to come (checkpoint.keep " + std::to_string(config.checkpoint.keep) +
                   ", and one that is being written)");
}

// Whether every rank sees in `dir` what rank 0 writes there, and can write, too.
bool shared_and_writable(const Examination& e, const std::string& dir) {
  const std::string token = dir + "/.tfm-doctor",
                    mine = token + "-" + std::to_string(rank_of_launch());
  const std::string words =
      e.launch.gather(std::to_string(::getpid()) + " " + std::to_string(std::time(nullptr)))[0];
  const auto written = error_of([&] {
    if (e.lead()) io::replace_file(token, words);
  });
  const std::string remedy = "set checkpoint.dir to a folder that every node mounts and may write";
  bool bad = e.findings.of_ranks("checkpoints", written, remedy);
  std::optional<Error> unseen;
  std::string seen;
  std::getline(std::ifstream(token), seen);
  if (!bad && seen != words)
    unseen.emplace(ExitCode::environment,
                   dir + " is not shared: what rank 0 writes there is not seen");
  bad = bad || e.findings.of_ranks("checkpoints", unseen, remedy);
  const auto unwritable = bad ? std::nullopt : error_of([&] { try_writing(mine); });
  bad = bad || e.findings.of_ranks("checkpoints", unwritable, remedy);
  if (e.lead()) ::unlink(token.c_str());
  return !bad;
}

std::vector<std::string> files_of(const config::SourceConfig& source) {
  std::vector<std::string> all;
  for (const std::string& path : {source.source, source.target})
    if (!path.empty()) all.push_back(path);
  for (const config::SourcePath& p : source.paths) {
    for (const std::string& path : {p.source, p.target})
      if (!path.empty()) all.push_back(path);
    if (!p.path.empty())
      for (const std::string& file : io::expand_glob(p.path)) all.push_back(file);
  }
  return all;
}

// "text.txt of 1234 bytes\n" of each file.
std::string sizes_of(const config::Config& config) {
  std::vector<std::string> files = files_of(config.data.train);
  if (config.data.validation)
    for (const std::string& f : files_of(*config.data.validation)) files.push_back(f);
  std::error_code irregular;
  for (const std::string& t : {config.data.tokenizer, config.data.source_tokenizer})
    if (fs::is_regular_file(t, irregular)) files.push_back(t);
  std::string text;
  for (const std::string& f : files) {
    const auto size = fs::file_size(f, irregular);
    text +=
        f + (irregular ? ", not a regular file" : " of " + std::to_string(size) + " bytes") + '\n';
  }
  return text;
}

// The first line in which two texts differ, of both.
std::pair<std::string, std::string> first_difference_of(const std::string& a,
                                                        const std::string& b) {
  std::istringstream of_a(a), of_b(b);
  std::string line_a, line_b;
  do {
    std::getline(of_a, line_a), std::getline(of_b, line_b);
  } while (line_a == line_b && of_a && of_b);
  for (std::string* line : {&line_a, &line_b})
    if (line->empty()) *line = "no more files";
  return {line_a, line_b};
}

}  // namespace

void check_checkpoints(const Examination& e, const config::Config& config) {
  const std::string dir = config.checkpoint.dir.empty() ? train::first_directory(config)
                                                        : config.checkpoint.directory();
  e.patience.wait_for("the checkpoint directory", "see that its file system answers on every node");
  const comm::Mesh mesh(config::layout_of(config), rank_of_launch());
  const std::int64_t bytes = sum(e.launch.gather(
      static_cast<double>(plan::checkpoint_bytes(plan::make_step_plan(config, mesh)))));
  const auto unfit = problems_of(config, [&](config::Problems& problems) {
    train::check_checkpoints(config, problems);
    train::check_latest(config, problems);
  });
  if (e.findings.of_ranks("checkpoints", unfit)) return;
  if (dir.empty())
    return e.findings.warning("checkpoints", "none are written: what stops a run loses all of it",
                              "set checkpoint.dir and checkpoint.every");
  std::optional<TrialDirectory> made;
  const std::string remedy = "set checkpoint.dir to a folder that every node mounts and may write";
  if (e.findings.of_ranks("checkpoints", error_of([&] {
                            if (e.lead()) made.emplace(dir);
                          }),
                          remedy))
    return;
  if (!shared_and_writable(e, dir)) return;
  const auto used = error_of([&] {
    if (e.lead()) checkpoint::RunLock lock(dir);
  });
  bool bad = e.findings.of_ranks("checkpoints", used);
  const auto full = e.lead() ? check_room(e, config, dir, bytes) : std::nullopt;
  bad |= e.findings.of_ranks("checkpoints", full,
                             std::string("free space, ") +
                                 (config.checkpoint.keep > 2 ? "lower checkpoint.keep, " : "") +
                                 "or take another checkpoint.dir");
  if (!bad)
    e.findings.ok("checkpoints", dir + " is shared and writable, with room for checkpoints of " +
                                     std::to_string(bytes) + " bytes");
}

void check_data(const Examination& e, const config::Config& config) {
  e.patience.wait_for("the data", "see that its file system answers on every node");
  const auto unfit = problems_of(config, [&](config::Problems& problems) {
    train::check_start(config, problems);
    data::check_data(config, problems);
  });
  if (e.findings.of_ranks("data", unfit,
                          "copy the files to every node, or name them on a file system that every "
                          "node mounts"))
    return;
  const auto sizes = e.launch.gather(sizes_of(config));
  const auto other = std::ranges::find_if(sizes, [&](const auto& s) { return s != sizes[0]; });
  if (other == sizes.end()) return e.findings.ok("data", "present on every rank, of equal sizes");
  const auto [first, theirs] = first_difference_of(sizes[0], *other);
  e.findings.problem("data",
                     "files differ: " + first + " on " + e.name_of(0) + ", " + theirs + " on " +
                         e.name_of(static_cast<int>(other - sizes.begin())),
                     "copy the same files to every node");
}

void check_metrics(const Examination& e, const config::Config& config) {
  const config::MetricsConfig& m = config.metrics;
  e.patience.wait_for("the files of metrics", "see that their file system answers");
  const auto file = error_of([&] {
    if (!e.lead() || m.jsonl.empty()) return;
    const TrialDirectory folder(io::parent_directory(m.jsonl));
    try_file(m.jsonl);
  });
  bool bad =
      e.findings.of_ranks("metrics", file, "set metrics.jsonl to a file that rank 0 may write");
  const auto events = error_of([&] {
    if (!e.lead() || m.tensorboard.empty()) return;
    const TrialDirectory folder(m.tensorboard);
    try_writing(m.tensorboard + "/.tfm-doctor");
  });
  bad |= e.findings.of_ranks("metrics", events,
                             "set metrics.tensorboard to a folder that rank 0 may write");
  const auto other = error_of([&] {
    std::error_code irregular;
    if (e.lead() && !file && fs::is_regular_file(m.jsonl, irregular) &&
        fs::file_size(m.jsonl) > 0 && !telemetry::is_metrics_file(m.jsonl))
      throw Error(ExitCode::usage, m.jsonl + " is there, and no run's metrics");
  });
  if (const std::string why = e.launch.gather(other ? other->what() : "")[0]; !why.empty()) {
    e.findings.warning("metrics", "they will not be written: " + why,
                       "set metrics.jsonl to another file");
    bad = true;
  }
  const auto port = error_of([&] {
    if (e.lead() && !m.listen.empty()) telemetry::MetricsServer::create({.listen = m.listen});
  });
  if (const std::string why = e.launch.gather(port ? port->what() : "")[0]; !why.empty())
    e.findings.warning("metrics", "they will not be served: " + why,
                       "set another metrics.listen, or none");
  else if (!bad)
    e.findings.ok("metrics",
                  m.jsonl.empty() ? "no file is asked for" : m.jsonl + " can be written");
}

}  // namespace tfm::launch
