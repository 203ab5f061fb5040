#pragma once
// The engine: owns the memory of a planned run and executes training steps and evaluations.
#include <array>

#include "comm/device_mesh.h"
#include "data/loader.h"
#include "device/event.h"
#include "device/replay.h"
#include "inference/totals.h"
#include "optim/loss_scale.h"
#include "plan/run_memory.h"

namespace tfm::train {

struct StepResult {
  double loss = 0;  // weighted sum of the terms, each a mean over the labels of the global batch
  double grad_norm = 0;
  std::int64_t tokens = 0;  // labels of the first term
  double loss_scale = 1;
  bool applied = true;      // false: loss or norm was NaN or Inf, and nothing was changed
  std::size_t shape = 0;    // of the batch, in plan().shapes
  inference::Totals terms;  // of the loss, by the names of TrainingRun::terms()
};

struct StepTimes {              // seconds
  std::vector<double> program;  // of each of the program's steps, over all micro-batches
  double norm = 0, update = 0;

  void clear() {
    program.clear();
    norm = update = 0;
  }
};

class Engine {
 public:
  Engine(plan::StepPlan plan, int threads)
      : Engine(std::move(plan), device::Device::cpu(threads)) {}
  Engine(plan::StepPlan plan, device::Device device);

  const plan::StepPlan& plan() const { return plan_; }
  const nn::Model& model() const { return plan_.model(); }
  device::Device& device() { return device_; }
  comm::RankContext rank_context() const { return {device_, plan_.mesh, tensors_}; }
  std::int64_t arena_high_water() const { return arena_.high_water() + work_.high_water(); }
  device::MemoryPlan memory_taken() const;

  void initialize_parameters();
  // Collective: each rank reads the weights that it updates from `source`, which writes to host
  // memory.
  void set_weights(const nn::WeightSource& source);
  // Collective. Under ZeRO 1 and 2, parameters that other ranks update are stale after an update
  // until the next step or this call.
  void gather_parameters() { optimizer_.gather(memory_.flat); }
  // Collective: this rank's parameters, whole, in the type in which it computes, laid out by
  // model().parameters(). They are in device memory: the engine's, or a gathered copy if ZeRO
  // shards them.
  std::shared_ptr<std::byte> whole_parameters();
  // The same, gathered to `memory`, which has room for all of them. Returns the engine's own
  // memory, and copies nothing, if that has them.
  void* whole_parameters_in(void* memory);
  // Collective: the weights of the whole model for plan().translator. `memory` has
  // plan::whole_parameters(plan()).bytes().
  inference::Weights translator_weights(std::byte* memory);
  void swap_average() { optimizer_.swap_average(device_.stream(), memory_.flat); }
  optim::LossScale& loss_scale() { return loss_scale_; }
  const optim::LossScale& loss_scale() const { return loss_scale_; }
  // Updates applied so far: steps without those whose loss or gradient was not finite.
  std::int64_t& updates() { return updates_; }
  // Loaders of this rank's parts of batches in the plan's shapes. Both use the engine's host
  // memory: a batch is valid until the other loader loads one, or until this one's next load, on a
  // device the load after that.
  data::DataLoader training_loader(const data::Dataset& dataset) const;
  data::DataLoader evaluation_loader(const data::Dataset& dataset, std::int64_t batches) const;
  // Computes the gradients of step `step` (from 1), reduced over the ranks, and the loss of the
  // global batch. `batch`: from a training_loader().
  StepResult compute_gradients(std::int64_t step, const Batch& batch);
  StepResult train_step(std::int64_t step, double lr, const Batch& batch);
  // train_step() in halves: launch() gives a step to the device, finish() waits for the oldest step
  // launched. Without `lr`: gradients alone. If runs_ahead(), one more step may be launched before
  // one with `lr` is finished. It assumes that the earlier step changes the weights. If that one's
  // update is not applied, the device skips the second update too, and finish() launches the second
  // step again, so results are those of one step after the other. A step without room for rows of
  // experts is launched again with more, with what follows it. `batch` stays valid
  // until its step is finished.
  void launch(std::int64_t step, std::optional<double> lr, const Batch& batch);
  StepResult finish();
  // Whether the host takes no part in the device's work, the same on all ranks. False on CPUs,
  // where launch() computes the step, and where ranks exchange tensors through host memory.
  bool runs_ahead() const;
  // Collective: evaluates the first `batches` batches of an evaluation_loader(). Negative
  // log-likelihood, labels, and the labels that are the most likely id, summed over the ranks that
  // share the loss (nn::loss_axes). After each batch go_on() says, the same on all ranks, whether
  // there is another one.
  inference::Totals evaluate(
      data::DataLoader& loader, std::int64_t batches,
      const std::function<bool()>& go_on = [] { return true; });

  // The activation memory, which is free between steps; large enough for a Translator with
  // plan().translator.
  std::span<std::byte> idle_memory() const { return memory_.activations; }
  // Flat buffers of this rank, laid out by model().parameters(); what ZeRO shards, by
  // optimizer().shards().
  const optim::FlatBuffers& flat() const { return memory_.flat; }
  const optim::Optimizer& optimizer() const { return optimizer_; }
  std::int64_t graphs() const;  // CUDA graphs recorded so far
  // The sums over the micro-batches of ops::router_load, of this rank's layers one after the other,
  // in the last step that was finished.
  std::span<const double> loads() const { return memory_.host[finished_].loads; }
  // Plans made anew so far, with more room for rows of experts.
  std::int64_t replans() const { return replans_; }
  // Adds the times of later steps to `times`; each part then waits for the device. Null: no longer.
  void time_steps(StepTimes* times) { times_ = times; }

 private:
  // A step between launch() and finish(). It uses the host memory (RunMemory::host) of the same
  // index.
  struct Launched {
    std::int64_t step = 0;
    std::optional<double> lr;  // none: no update
    const Batch* batch = nullptr;
    inference::Totals totals;                                 // labels of all ranks
    std::array<std::int64_t, kMostObjectives> packed_rows{};  // StepState::packed_rows
    double loss_scale = 1;
    device::Event done;
  };

  // What a CUDA graph of a micro-batch depends on.
  struct Recorded {
    const plan::ShapePlan* shape = nullptr;
    graph::MicroBatch micro_batch;
    bool update = false;
    std::array<std::int64_t, kMostObjectives> packed_rows{};
    auto operator<=>(const Recorded&) const = default;
  };

  // The memory of each leaf, by value.
  std::vector<Tensor> leaves(const nn::Recording& recording) const;
  void bind(plan::ShapePlan& shape);
  data::DataLoader loader(
      const data::Dataset& dataset, std::int64_t batches,
      const std::function<data::DataLoader::RankShape(const plan::ShapePlan&)>& part) const;
  void upload(const Batch& batch, const plan::ShapePlan& shape, std::int64_t first);
  StepResult run_step(std::int64_t step, std::optional<double> lr, const Batch& batch);
  // Enqueues a step on the device. `ahead`: before the outcome of the step before is known.
  void enqueue(std::size_t launched, bool ahead);
  // StepState::packed_rows for all micro-batches of a step, on all ranks.
  std::array<std::int64_t, kMostObjectives> packed_rows(const Batch& batch,
                                                        const plan::ShapePlan& shape) const;
  void run_pass(const plan::ShapePlan& shape, const plan::Pass& pass,
                const graph::ExecContext& context, bool update);
  void copy_loads(const plan::ShapePlan& shape, std::int64_t slot,
                  const graph::ExecContext& context);
  void wait_for(const device::Event& event);
  // Collective: how much larger parallel.expert_bound must probably be for the oldest step
  // launched; 0: there was room for its rows of experts on all ranks.
  double missing_room() const;
  // Plans with that, and launches again what is under way.
  void make_room(double more);
  // Whether passes with `run` can be recorded in a CUDA graph.
  bool recordable(const plan::ShapePlan& shape, graph::MicroBatch run) const;

  plan::StepPlan plan_;
  device::Device device_;
  device::Arena arena_, work_, host_;  // device memory; host memory that is filled for it
  comm::Mesh tensors_;                 // groups for device tensors; ends before their memory does
  optim::Optimizer optimizer_;
  plan::RunMemory memory_;
  optim::LossScale loss_scale_;
  std::int64_t updates_ = 0, replans_ = 0;
  std::array<Launched, 2> launched_;  // used in turn
  std::size_t oldest_ = 0, under_way_ = 0, finished_ = 0;
  std::map<Recorded, device::Replay> replays_;
  StepTimes* times_ = nullptr;
};

}  // namespace tfm::train
