#pragma once
// The memory layout of a run. One function lays it out: with counting arenas it plans the memory,
// with arenas that have memory it takes it.
#include "plan/step_plan.h"

namespace tfm::plan {

// Memory categories.
inline constexpr const char* kParameters = "parameters";
inline constexpr const char* kGradients = "gradients";
inline constexpr const char* kOptimizer = "optimizer";
inline constexpr const char* kMaster = "master_weights";
inline constexpr const char* kAverage = "average";
inline constexpr const char* kActivations = "activations";
inline constexpr const char* kBatch = "batch";
inline constexpr const char* kConstants = "constants";

struct RunMemory {
  optim::FlatBuffers flat{};
  std::span<std::byte> activations;          // of one program at a time, or of the update
  std::map<std::string, std::byte*> leaves;  // by name: inputs of a micro-batch, and constants
  StepNumbers* numbers = nullptr;
  StepOutcome* outcome = nullptr;
  std::span<double> loads;  // nn::RouterTerms::loads, one after the other, over the micro-batches
  // Host memory that the host fills and reads for one step. For a device there are two, because the
  // next step is launched before this one is done.
  struct Host {
    BatchFields batch;               // this rank's part of the global batch
    std::span<StepNumbers> numbers;  // by micro-batch
    StepOutcome* outcome = nullptr;
    std::span<double> loads;
  };
  std::vector<Host> host;
};

// The front of the activation memory, before a translator's: the whole parameters of this rank, if
// ZeRO shards them, and of the model, if pipeline stages divide it.
struct WholeParameters {
  std::int64_t own = 0, model = 0;  // bytes
  std::int64_t bytes() const { return own + model; }
};
WholeParameters whole_parameters(const StepPlan& plan);

// `work`: gradients and activations, which outlast no step. `staging`: host memory, used if the
// device is another.
RunMemory lay_out(const StepPlan& plan, device::Arena& arena, device::Arena& work,
                  device::Arena& staging);
// The part of it in `work` alone, which lay_out() takes, too.
void lay_out_work(const StepPlan& plan, device::Arena& work, RunMemory& memory);
// Bytes of `work`.
std::int64_t work_bytes(const StepPlan& plan);

}  // namespace tfm::plan
