#include "train/time_left.h"

#include <algorithm>
#include <numeric>

namespace tfm::train {
namespace {

constexpr std::size_t kRecentSteps = 50;  // that the mean is of

}  // namespace

void TimeLeft::add_step(double seconds) {
  if (steps_.size() == 1 && first_) steps_.clear(), first_ = false;
  steps_.push_back(seconds);
  if (steps_.size() > kRecentSteps) steps_.pop_front();
}

void TimeLeft::add_evaluation(std::int64_t step, double seconds) { evaluations_ = {step, seconds}; }
void TimeLeft::add_checkpoint(std::int64_t step, double seconds) { checkpoints_ = {step, seconds}; }

double TimeLeft::Regular::due(std::int64_t step, std::int64_t steps, std::int64_t every) const {
  const std::int64_t done = std::min(std::max(last, step - 1), steps);
  std::int64_t count = every > 0 ? steps / every - done / every : 0;
  if (done < steps && (every == 0 || steps % every != 0)) ++count;
  return static_cast<double>(count) * seconds;
}

double TimeLeft::after(std::int64_t step) const {
  if (steps_.empty()) return 0;
  const double mean =
      std::accumulate(steps_.begin(), steps_.end(), 0.0) / static_cast<double>(steps_.size());
  double seconds = static_cast<double>(std::max<std::int64_t>(train_.steps - step, 0)) * mean;
  if (eval_.every > 0) seconds += evaluations_.due(step, train_.steps, eval_.every);
  if (!checkpoint_.dir.empty()) seconds += checkpoints_.due(step, train_.steps, checkpoint_.every);
  return seconds;
}

}  // namespace tfm::train
