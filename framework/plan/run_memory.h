#pragma once
// Where everything of a run lies. One function lays it out: with arenas that count it plans the
// memory, with arenas that have memory it takes it.
#include "plan/step_plan.h"

namespace tfm::plan {

// Categories.
inline constexpr const char* kParameters = "parameters";
inline constexpr const char* kGradients = "gradients";
inline constexpr const char* kOptimizer = "optimizer";
inline constexpr const char* kMaster = "master_weights";
inline constexpr const char* kAverage = "average";
inline constexpr const char* kActivations = "activations";
inline constexpr const char* kBatch = "batch";
inline constexpr const char* kConstants = "constants";

struct RunMemory {
  optim::Optimizer::Flat flat{};
  std::span<std::byte> activations;          // of one program at a time, or of the update
  std::map<std::string, std::byte*> leaves;  // by name: inputs of a micro-batch, and constants
  StepNumbers* numbers = nullptr;
  StepOutcome* outcome = nullptr;
  // Of the host, which fills and reads it for a step. For devices there are two: the next step is
  // launched before this one is done.
  struct Host {
    BatchFields batch;               // this rank's part of the global batch
    std::span<StepNumbers> numbers;  // by micro-batch
    StepOutcome* outcome = nullptr;
  };
  std::vector<Host> host;
};

// Of the memory of activations, in front of a translator's: this rank's parameters, where ZeRO
// shards them, and those of the whole model, where stages share it out.
struct WholeParameters {
  std::int64_t own = 0, model = 0;  // bytes
  std::int64_t bytes() const { return own + model; }
};
WholeParameters whole_parameters(const StepPlan& plan);

// `staging`: of the host, where the device is another.
RunMemory lay_out(const StepPlan& plan, device::Arena& arena, device::Arena& staging);

}  // namespace tfm::plan
