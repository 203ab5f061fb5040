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
  double loss = 0;  // sum over the objectives of the mean over the labels of the global batch
  double grad_norm = 0;
  std::int64_t tokens = 0;  // labels of the first objective
  double loss_scale = 1;
  bool applied = true;    // false: loss or norm was NaN or Inf, and nothing was changed
  std::size_t shape = 0;  // of the batch, in plan().shapes
};

struct StepTimes {              // seconds
  std::vector<double> program;  // of each of its steps, over all micro-batches
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
  std::int64_t arena_high_water() const { return arena_.high_water(); }
  const device::MemoryPlan& memory_taken() const { return arena_.taken(); }

  void initialize_parameters();
  // Reads the weights that this rank updates, to host memory. All ranks call alike.
  void set_weights(const nn::WeightSource& source);
  // Under ZeRO 1 and 2 the parameters of others' shares are as they were before the last update
  // until the next step, or this. All ranks call alike.
  void gather_parameters() { optimizer_.gather(memory_.flat); }
  // Of this rank, as it computes with them, laid out by model().parameters(), in memory of the
  // device: the engine's, or where ZeRO shards them a copy. Under ZeRO the ranks gather them: all
  // call alike.
  std::shared_ptr<std::byte> whole_parameters();
  // The same, to memory for all of them; copies nothing where the engine has them.
  void* whole_parameters(void* memory);
  // Of the whole model, for plan().translator; `memory`: plan::whole_parameters() of it.
  inference::Weights translator_weights(std::byte* memory);
  void swap_average() { optimizer_.swap_average(device_.stream(), memory_.flat); }
  optim::LossScale& loss_scale() { return loss_scale_; }
  // Updates applied so far: steps without those whose loss or gradient was not finite.
  std::int64_t& updates() { return updates_; }
  // Of this rank's parts of batches that have the plan's shapes, in memory of the engine that both
  // share: a batch is valid until the other loader's next one or this one's next, for a device the
  // one after that.
  data::DataLoader training_loader(const data::Dataset& dataset) const;
  data::DataLoader evaluation_loader(const data::Dataset& dataset, std::int64_t batches) const;
  // Gradients of step `step` (from 1), reduced over the axes; the loss of the global batch.
  // `batch`: as a training_loader() gives it.
  StepResult compute_gradients(std::int64_t step, const Batch& batch);
  StepResult train_step(std::int64_t step, double lr, const Batch& batch);
  // These in halves: launch() gives a step to the device, finish() waits for the oldest one that
  // was launched; no `lr`: gradients alone. Where the engine runs ahead, one more may be launched
  // before a train_step() is finished: it assumes that this one changes the weights. Where that has
  // no finite loss or gradient, the device leaves out the update of the second, too, and finish()
  // launches it again. So results are those of one step after the other. `batch` stays valid until
  // its step is finished.
  void launch(std::int64_t step, std::optional<double> lr, const Batch& batch);
  StepResult finish();
  // The host takes no part in what the device does. Not so on CPUs, where a step is computed by
  // launch(), and where ranks exchange tensors through host memory. The same on all ranks.
  bool runs_ahead() const;
  // Of the first batches of an evaluation_loader(), summed over the data axis: negative
  // log-likelihood, labels, and how many of them are the most likely id. After each batch go_on()
  // says, the same on all ranks, whether there is to be another one.
  inference::Totals evaluate(
      data::DataLoader& loader, std::int64_t batches,
      const std::function<bool()>& go_on = [] { return true; });

  // The memory of activations, which is free between steps; enough for a Translator with
  // plan().translator.
  std::span<std::byte> idle_memory() const { return memory_.activations; }
  // Flat buffers of this rank, laid out by model().parameters().
  const optim::Optimizer::Flat& flat() const { return memory_.flat; }
  const optim::Optimizer& optimizer() const { return optimizer_; }
  std::int64_t graphs() const;  // CUDA graphs recorded so far
  // Adds up the times of steps from now on; the device is waited for after each part.
  void time_steps(StepTimes* times) { times_ = times; }

 private:
  // A step between launch() and finish(); it uses the memory of the host of the same number.
  struct Launched {
    std::int64_t step = 0;
    std::optional<double> lr;  // none: no update
    const Batch* batch = nullptr;
    inference::Totals totals;                                 // labels of all ranks
    std::array<std::int64_t, kMostObjectives> packed_rows{};  // StepState::packed_rows
    double loss_scale = 1;
    device::Event done;
  };

  std::vector<Tensor> leaves(const nn::Recording& recording) const;  // memory of each, by value
  void bind(plan::ShapePlan& shape);
  data::DataLoader loader(
      const data::Dataset& dataset, std::int64_t batches,
      const std::function<data::DataLoader::RankShape(const plan::ShapePlan&)>& part) const;
  void upload(const Batch& batch, const plan::ShapePlan& shape, std::int64_t first);
  StepResult run_step(std::int64_t step, std::optional<double> lr, const Batch& batch);
  // Gives a step to the device; `ahead`: of the outcome of the step before.
  void enqueue(std::size_t launched, bool ahead);
  // Of all micro-batches of a step, on all ranks: StepState::packed_rows.
  std::array<std::int64_t, kMostObjectives> packed_rows(const Batch& batch,
                                                        const plan::ShapePlan& shape) const;
  void run_pass(const plan::ShapePlan& shape, const plan::Pass& pass,
                const graph::ExecContext& context, bool update);
  void wait_for(const device::Event& event);
  // Of a micro-batch that reduces the gradients, or does not.
  bool recordable(const plan::ShapePlan& shape, graph::MicroBatch run) const;

  plan::StepPlan plan_;
  device::Device device_;
  device::Arena arena_, host_;  // of the device; of what the host fills for it
  comm::Mesh tensors_;          // groups for tensors of the device; ends before their memory does
  optim::Optimizer optimizer_;
  plan::RunMemory memory_;
  optim::LossScale loss_scale_;
  std::int64_t updates_ = 0;
  std::array<Launched, 2> launched_;  // by turns
  std::size_t oldest_ = 0, under_way_ = 0;
  std::map<std::tuple<const plan::ShapePlan*, bool, bool, bool,
                      std::array<std::int64_t, kMostObjectives>>,
           device::Replay>
      replays_;  // by shape, accumulation, reduction, update and packed rows
  StepTimes* times_ = nullptr;
};

}  // namespace tfm::train
