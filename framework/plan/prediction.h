#pragma once
// Predicts how long a planned step takes on a kind of device: every step of the program by its
// products, attention and moved bytes, every collective, and the update. Kernels run one after
// another; fusion saves time only where the program has fused kernels.
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "plan/device_model.h"
#include "plan/step_plan.h"

namespace tfm::plan {

enum class Limit : std::uint8_t {
  products,
  attention,
  memory,
  optimizer,
  communication,
  launches,
  bubble
};
inline constexpr int kLimits = 7;
// "matrix products", "attention", "memory bandwidth", "optimizer", "communication", "launches",
// "bubble".
std::string_view name_of(Limit l);

struct Prediction {
  // Seconds of forward, recompute, backward, gather and reduce (what kernels do not hide),
  // optimizer and bubble.
  std::map<std::string, double> phases;
  double passes = 0;                     // of these, in the programs of micro-batches
  double layers = 0;                     // `passes` without gather, reduce and recompute
  std::array<double, kLimits> limits{};  // the same seconds by what limits them

  double seconds() const;
  Limit limited_by() const;  // the limit with the most seconds
};

// Seconds of one step of a program, without communication.
struct KernelSeconds {
  double products = 0, attention = 0, memory = 0;
  double launches = 0;  // what launching its kernels takes beyond the others
  double sum() const { return products + attention + memory + launches; }
};
KernelSeconds kernel_seconds(const graph::Program& program, std::size_t step, bool accumulating,
                             const DeviceModel& device);

// Bytes that this rank reads and writes for the gradient norm and for its part of the update.
struct UpdateBytes {
  double norm = 0, update = 0;
};
UpdateBytes update_bytes(const StepPlan& plan);

// Seconds of a micro-batch by node of the recording: its kernels and the collectives within layers,
// without those of ZeRO, a pipeline or recomputation. `accumulating`: for a micro-batch after the
// step's first.
std::vector<double> seconds_of_nodes(const StepPlan& plan, const ShapePlan& shape,
                                     bool accumulating, const DeviceModel& device);

// One optimizer step of `shape`.
Prediction predict(const StepPlan& plan, const ShapePlan& shape, const DeviceModel& device);
// One optimizer step of the slowest rank of a pipeline, from its stages' plans, for the largest
// shape. If a micro-batch takes t_s on stage s, M of them take (M - 1) max t_s + the sum of t_s;
// with c chunks per rank, what is beyond M max t_s shrinks by c. The time in which a stage does not
// work is its bubble.
Prediction predict(const std::vector<const StepPlan*>& stages, const DeviceModel& device);

}  // namespace tfm::plan
