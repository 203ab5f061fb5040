#pragma once
// The estimate of the time that a run still takes: the mean of its last steps, and what is still
// due of evaluations and checkpoints at the time of the last one of each.
#include <cstdint>
#include <deque>

#include "config/config.h"

namespace tfm::train {

class TimeLeft {
 public:
  explicit TimeLeft(const config::Config& config)
      : train_(config.train), eval_(config.eval), checkpoint_(config.checkpoint) {}
  // What was done at or after `step`, and the seconds that it took.
  void add_step(double seconds);
  void add_evaluation(std::int64_t step, double seconds);
  void add_checkpoint(std::int64_t step, double seconds);
  // Seconds after `step` was done; 0 once nothing is due.
  double after(std::int64_t step) const;

 private:
  struct Regular {           // what happens every some steps and after the last
    std::int64_t last = -1;  // step of the last one
    double seconds = 0;      // of that one; 0: none was measured
    double due(std::int64_t step, std::int64_t steps, std::int64_t every) const;
  };

  config::TrainConfig train_;
  config::EvalConfig eval_;
  config::CheckpointConfig checkpoint_;
  std::deque<double> steps_;  // the last ones
  bool first_ = true;         // the only step so far is the first, which is slower than others
  Regular evaluations_, checkpoints_;
};

}  // namespace tfm::train
