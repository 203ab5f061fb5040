#pragma once
// A run's static part: model, programs, buckets and one memory plan, made without allocating; then the engine that holds the
// memory and executes training steps and evaluations.
#include <functional>
#include <map>

#include "device/arena.h"
#include "graph/planner.h"
#include "nn/model.h"
#include "optim/optimizer.h"
#include "train/config.h"

namespace tfm {

using MakeModel = std::function<std::unique_ptr<Model>(const Config&, const Mesh&)>;

Schedule schedule_of(const Config& config);
OptimizerOptions optimizer_of(const Config& config);

// Everything known before launch, for one rank.
struct StepPlan {
  Config config;
  Mesh mesh;  // its communicators may be null: planning needs none
  DType real = DType::f32;
  std::unique_ptr<Model> model;
  nn::Rows rows;                  // of a micro-batch
  std::int64_t micro_batches = 1; // of a step
  Recording training, evaluation;
  Program train_program, eval_program;
  std::vector<Bucket> buckets;
  MemoryPlan memory;

  std::int64_t sequences_per_rank() const { return rows.sequences * micro_batches; }
  double matmul_flops() const;  // forward and backward products of one step on this rank
  // Collectives of one optimizer step in order: the program's once per micro-batch (bucket reductions in the last one only),
  // then the update's.
  std::vector<CollectiveUse> collectives() const;
  std::uint64_t collective_hash() const;
};

StepPlan make_step_plan(const Config& config, const Mesh& mesh, const MakeModel& make_model, DType real = DType::f32);

// Fills ids and labels (count * T each) of sequences [first, first + count) of a global batch; a label < 0 is not counted.
using BatchReader =
    std::function<void(std::int64_t first, std::int64_t count, std::span<std::int32_t> ids, std::span<std::int32_t> labels)>;

struct StepResult {
  double loss = 0;  // mean over the real tokens of the global batch
  double grad_norm = 0;
  std::int64_t tokens = 0;
  bool applied = true;  // false: loss or norm was not finite and nothing was changed
};

class Engine {
 public:
  Engine(StepPlan plan, int threads);

  const StepPlan& plan() const { return plan_; }
  const Model& model() const { return *plan_.model; }
  std::int64_t arena_high_water() const { return arena_.high_water(); }
  const MemoryPlan& memory_taken() const { return arena_.taken(); }

  void initialize_parameters();
  // Gradients of step `step` (from 1), reduced over the axes; the loss of the global batch.
  StepResult compute_gradients(std::int64_t step, const BatchReader& read);
  StepResult train_step(std::int64_t step, double lr, const BatchReader& read);
  // Mean loss over `sequences` sequences and the number of their real tokens.
  std::pair<double, std::int64_t> evaluate(std::int64_t sequences, const BatchReader& read);

  // Flat buffers of this rank, laid out by model().parameters().
  const Optimizer::Flat& flat() const { return flat_; }
  const Optimizer& optimizer() const { return optimizer_; }
  // Times every step of the training program from now on; seconds by program step, summed.
  void time_steps(std::vector<double>* seconds) { seconds_ = seconds; }

 private:
  void bind(Program& program, const Recording& recording, std::byte* activations);
  void load(const Recording& recording, const Program& program, std::int64_t first);
  double run_micro_batches(std::int64_t step, std::int64_t tokens);

  StepPlan plan_;
  cpu::Stream stream_;
  Arena arena_;
  Optimizer optimizer_;
  Optimizer::Flat flat_{};
  std::span<std::int32_t> ids_, labels_;  // of this rank's part of the global batch
  std::map<std::string, std::byte*> leaf_memory_;
  std::vector<double>* seconds_ = nullptr;
};

}  // namespace tfm
