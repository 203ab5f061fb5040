#include "train/step_phases.h"

#include <map>

namespace tfm::train {

StepPhases phases_of_step(const graph::Program& program, const StepTimes& times, double data,
                          double whole) {
  std::map<graph::Phase, double> seconds;
  for (std::size_t i = 0; i < program.instructions().size(); ++i)
    seconds[program.instructions()[i].phase] += times.program[i];
  StepPhases phases{{"data", data},
                    {"forward", seconds[graph::Phase::forward]},
                    {"recompute", seconds[graph::Phase::recompute]},
                    {"backward", seconds[graph::Phase::backward]},
                    {"reduce", seconds[graph::Phase::reduce]},
                    {"optimizer", times.norm + times.update}};
  if (seconds.contains(graph::Phase::gather))
    phases.emplace_back("gather", seconds[graph::Phase::gather]);
  double rest = whole;
  for (const auto& phase : phases) rest -= phase.second;
  phases.emplace_back("other", rest);
  return phases;
}

}  // namespace tfm::train
