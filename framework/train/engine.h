#pragma once
// What holds a planned run's memory and executes training steps and evaluations.
#include <array>

#include "comm/device_mesh.h"
#include "device/replay.h"
#include "optim/loss_scale.h"
#include "train/step_plan.h"

namespace tfm {

// Fills the fields of sequences [first, first + count) of a global batch; each span holds those sequences.
using BatchReader = std::function<void(std::int64_t first, std::int64_t count, Fields& fields)>;

struct StepResult {
  double loss = 0;  // sum over the objectives of the mean over the labels of the global batch
  double grad_norm = 0;
  std::int64_t tokens = 0;  // labels of the first objective
  double loss_scale = 1;
  bool applied = true;  // false: loss or norm was not finite and nothing was changed
};

struct Totals {  // by objective
  std::array<double, 2> loss{};
  std::array<std::int64_t, 2> labels{}, correct{};  // correct: evaluation only
  double mean() const;      // sum of the objectives' means
  double perplexity() const, accuracy() const;  // of the first objective
  // Of one run of a recording without training; `fields` begin with what it read.
  void add(const Recording& run, const Fields& fields, const std::function<double(Value)>& output);
  Totals& operator+=(const Totals& other);
  void all_reduce(Communicator& over);
};

struct StepTimes {  // seconds
  std::vector<double> program;  // of each of its steps, over all micro-batches
  double reduce = 0;            // the end of all reductions
  double norm = 0, update = 0;
};

class Engine {
 public:
  Engine(StepPlan plan, int threads) : Engine(std::move(plan), Device::cpu(threads)) {}
  Engine(StepPlan plan, Device device);

  const StepPlan& plan() const { return plan_; }
  const Model& model() const { return *plan_.model; }
  Device& device() { return device_; }
  Site site() const { return {device_, plan_.mesh, tensors_}; }
  std::int64_t arena_high_water() const { return arena_.high_water(); }
  const MemoryPlan& memory_taken() const { return arena_.taken(); }

  void initialize_parameters();
  // `fill` writes all weights of this rank, laid out by model().parameters(), in the wide type of theirs, to host memory. All ranks call alike.
  void set_weights(const std::function<void(void* flat)>& fill);
  void swap_average() { optimizer_.swap_average(device_.stream(), flat_); }
  LossScale& loss_scale() { return loss_scale_; }
  // Gradients of step `step` (from 1), reduced over the axes; the loss of the global batch.
  // `sequences`: of the global batch, where it holds fewer than its shape has room for.
  StepResult compute_gradients(std::int64_t step, const BatchReader& read, std::size_t shape = 0, std::int64_t sequences = -1);
  StepResult train_step(std::int64_t step, double lr, const BatchReader& read, std::size_t shape = 0, std::int64_t sequences = -1);
  // Of `sequences` sequences of a shape, summed over the data axis: negative log-likelihood, labels, and how many of them are the most
  // likely id.
  Totals evaluate(std::int64_t sequences, const BatchReader& read, std::size_t shape = 0);

  // The memory of activations, which is free between steps; enough for a Translator with plan().translator.
  std::span<std::byte> idle_memory() const { return {activations_, static_cast<std::size_t>(plan_.memory.categories.at(kActivations))}; }
  // Flat buffers of this rank, laid out by model().parameters().
  const Optimizer::Flat& flat() const { return flat_; }
  const Optimizer& optimizer() const { return optimizer_; }
  std::int64_t graphs() const;  // CUDA graphs recorded so far
  // Adds up the times of steps from now on; the device is waited for after each part.
  void time_steps(StepTimes* times) { times_ = times; }

 private:
  void bind(Program& program, const Recording& recording);
  void read(std::int64_t first, std::int64_t count, std::int64_t padded, const Recording& recording, const BatchReader& reader);
  void load(const Recording& recording, const Program& program, std::int64_t first, std::int64_t sequences);
  // Up to the outcome, with an update where there is a rate.
  StepResult run_step(std::int64_t step, std::optional<double> lr, const BatchReader& read, std::size_t shape, std::int64_t sequences);
  void run_micro_batches(std::int64_t step, std::optional<double> lr, const ShapePlan& shape, const Totals& labels);
  void run_micro_batch(const ShapePlan& shape, const ExecContext& context, bool update);
  void wait_for_device();
  bool recordable(bool reduces) const;  // of a micro-batch that reduces the gradients, or does not

  StepPlan plan_;
  Device device_;
  Arena arena_, host_;  // of the device; of what the host fills for it
  Mesh tensors_;        // groups for tensors of the device; ends before their memory does
  Optimizer optimizer_;
  Optimizer::Flat flat_{};
  LossScale loss_scale_;
  std::byte* activations_ = nullptr;
  Fields batch_;  // this rank's part of the global batch
  Fields view_;   // what a reader fills
  std::map<std::string, std::byte*> leaf_memory_;
  StepNumbers* numbers_ = nullptr;          // of the device
  std::span<StepNumbers> next_numbers_;     // of the host, by micro-batch
  StepOutcome* outcome_ = nullptr;          // of the device
  std::span<StepOutcome> known_outcome_;    // of the host: one
  std::map<std::tuple<const ShapePlan*, bool, bool, bool>, Replay> replays_;  // by shape, accumulation, reduction and update
  StepTimes* times_ = nullptr;
};

}  // namespace tfm
