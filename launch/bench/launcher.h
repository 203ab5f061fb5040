#pragma once
// Runs tfm-train on several ranks and reads what the runs measure of themselves.
#include <filesystem>

#include "launch/bench/bench.h"

namespace tfm::launch {

struct MeasuredRun {
  double step_seconds = 0;      // median
  double tokens_per_step = 0;   // mean
  nlohmann::ordered_json host;  // as reported by the run at its start
};

class Launcher {
 public:
  static constexpr const char* kRanks = "{ranks}";  // the number of ranks in a launch command

  // Uses --launcher, or mpirun on this machine.
  explicit Launcher(const Arguments& args);
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;
  ~Launcher();

  const std::string& command() const { return command_; }
  // Runs as many steps as `config` has; the first `warmup` do not count. If the run fails, throws
  // an Error with its exit code.
  MeasuredRun run(config::Config config, int ranks, std::int64_t warmup) const;

 private:
  MeasuredRun read(int ranks, std::int64_t warmup) const;

  std::string command_;
  std::filesystem::path folder_;  // for the configuration and metrics of a run
};

}  // namespace tfm::launch
