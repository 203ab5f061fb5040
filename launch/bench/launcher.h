#pragma once
// Runs of tfm-train on several ranks, and what they measure of themselves.
#include <filesystem>

#include "launch/bench/bench.h"

namespace tfm::launch {

struct MeasuredRun {
  double step_seconds = 0;      // median
  double tokens_per_step = 0;   // mean
  nlohmann::ordered_json host;  // as the run tells at its start
};

class Launcher {
 public:
  static constexpr const char* kRanks = "{ranks}";  // in a command that starts ranks

  // By --launcher, else mpirun on this machine.
  explicit Launcher(const Arguments& args);
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;
  ~Launcher();

  const std::string& command() const { return command_; }
  // Of as many steps as `config` has; the first `warmup` do not count. Error with the exit code of
  // a run that fails.
  MeasuredRun run(config::Config config, int ranks, std::int64_t warmup) const;

 private:
  MeasuredRun read(int ranks, std::int64_t warmup) const;

  std::string command_;
  std::filesystem::path folder_;  // of a run's configuration and metrics
};

}  // namespace tfm::launch
