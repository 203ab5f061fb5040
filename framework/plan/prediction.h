#pragma once
// How long a planned step should take on a kind of device: every step of the program by its
// products, attention and moved bytes, every collective, and the update. Kernels follow each other;
// what a fused kernel would save is not counted unless the program has it.
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
std::string_view name_of(Limit l);  // "matrix products", "attention", "memory bandwidth",
                                    // "optimizer", "communication", "launches", "bubble"

struct Prediction {
  std::map<std::string, double> phases;  // seconds: forward, recompute, backward, reduce (what
                                         // backward does not hide), optimizer, bubble
  double passes = 0;                     // of these, in the micro-batches' programs
  double layers = 0;                     // and without gathers, sums of gradients, recomputation
  std::array<double, kLimits> limits{};  // the same seconds by what they are spent on

  double seconds() const;
  Limit limited_by() const;  // the most seconds
};

// One step of a program, without what it exchanges with other ranks.
struct KernelSeconds {
  double products = 0, attention = 0, memory = 0;
  double launches = 0;  // what the others lack of the time to launch its kernels
  double sum() const { return products + attention + memory + launches; }
};
KernelSeconds kernel_seconds(const graph::Program& program, std::size_t step, bool accumulating,
                             const DeviceModel& device);

// Bytes that this rank moves for the gradient's norm, and for its part of the update.
struct UpdateBytes {
  double norm = 0, update = 0;
};
UpdateBytes update_bytes(const StepPlan& plan);

// Seconds of a micro-batch by node of the recording: its kernels, and the collectives within
// layers. Neither the ZeRO stage nor a pipeline nor recomputation adds to them. `accumulating`:
// after the step's first.
std::vector<double> seconds_of_nodes(const StepPlan& plan, const ShapePlan& shape,
                                     bool accumulating, const DeviceModel& device);

// Of one optimizer step of `shape`.
Prediction predict(const StepPlan& plan, const ShapePlan& shape, const DeviceModel& device);
// Of the slowest rank of a pipeline, by the plans of its stages for the largest shape. With passes
// of t_s for a micro-batch on stage s, of which there are M, they take (M - 1) max t_s + the sum of
// t_s: what a stage does not work meanwhile is its bubble.
Prediction predict(const std::vector<const StepPlan*>& stages, const DeviceModel& device);

}  // namespace tfm::plan
