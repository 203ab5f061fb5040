#pragma once
// The static part of a run: model, programs, buckets and one memory plan, made without allocating.
#include <map>
#include <optional>
#include <set>

#include "comm/device_mesh.h"
#include "config/config.h"
#include "device/arena.h"
#include "graph/planner.h"
#include "inference/forward.h"
#include "nn/model.h"
#include "optim/optimizer.h"
#include "plan/schedule.h"

namespace tfm::plan {

DType dtype_of(config::Precision precision);
optim::Schedule schedule_of(const config::Config& config);
comm::DeviceMeshOptions mesh_options(const config::Config& config);

// The programs of one shape of batch.
struct ShapePlan {
  std::int64_t batch = 0;          // sequences of the global batch
  nn::BatchShape shape;            // of a micro-batch
  std::int64_t micro_batches = 1;  // of a step
  std::vector<Pass> passes;        // of a step
  nn::Recording training;
  graph::Program train_program;
  inference::ForwardPass evaluation;

  // Sequences of a batch rank; on the last ranks, those beyond `batch` are padding.
  std::int64_t sequences_per_rank() const { return shape.sequences * micro_batches; }
};

// Divides a global batch into the micro-batches of a batch rank. Makes no programs.
ShapePlan divided(const config::Config& config, const comm::Layout& layout, nn::BatchShape shape);

// Whether steps on a device skip rows of the output layer that have no label. All ranks then
// compute as many rows as the micro-batch with the most labels needs, because graphs with
// collectives must be the same everywhere.
bool packs_rows(const config::Config& config);

// Whether the gradients of each micro-batch are summed over ranks separately with every ZeRO stage,
// which makes all stages bit-equal.
bool sums_every_run(const config::Config& config, std::int64_t micro_batches);

// A reduction of one number for each objective over all ranks that have losses.
inline comm::CollectiveCall over_objectives(comm::Collective kind, const comm::Layout& layout,
                                            std::int64_t objectives) {
  return {kind, nn::loss_axes(layout), 8 * objectives, comm::Purpose::totals};
}
// The collectives of a step besides those of its program and its update, in order: the sum of the
// labels, the most labels of a micro-batch if rows are packed, the norm, the sum of the losses.
std::vector<comm::CollectiveCall> sums_of_step(const config::Config& config,
                                               const comm::Layout& layout, std::int64_t objectives);

// A rank's share of the parameters, which depends neither on recomputation nor on the micro-batch
// size.
struct ParameterPlan {
  std::unique_ptr<const nn::Model> model;
  std::vector<optim::Bucket> buckets;
  optim::ShardLayout shards;
};

// Everything known before launch, for one rank.
struct StepPlan {
  config::Config config;
  comm::Mesh mesh;  // its communicators may be null: planning needs none
  DType dtype = DType::f32;
  bool translates = false;  // the validation data
  std::shared_ptr<const ParameterPlan> parameters;
  // The model that translates the validation data; null unless eval.metrics need it.
  std::shared_ptr<const nn::Model> translator;
  std::int64_t translation_bytes = 0;  // of the translator's programs
  std::vector<ShapePlan> shapes;       // one for each of batch_shapes(config)
  device::MemoryPlan memory;           // of the device; see RunMemory
  device::MemoryPlan staging;          // of the host, if the device is another

  const nn::Model& model() const { return *parameters->model; }
  const std::vector<optim::Bucket>& buckets() const { return parameters->buckets; }
  const optim::ShardLayout& shards() const { return parameters->shards; }
  bool on_host() const { return config.device != config::DeviceKind::cuda; }

  std::int64_t objectives() const { return std::ssize(largest().training.losses); }
  // The sum over ranks of the objectives' labels, and of their losses.
  comm::CollectiveCall sum_of_objectives() const {
    return over_objectives(comm::Collective::all_reduce_sum, mesh.layout, objectives());
  }
  comm::CollectiveCall most_labels() const {
    return over_objectives(comm::Collective::all_reduce_max, mesh.layout, objectives());
  }
  std::vector<comm::CollectiveCall> sums() const {
    return sums_of_step(config, mesh.layout, objectives());
  }
  // The largest shape; it stands in where a function below is given none.
  const ShapePlan& largest() const { return shapes.back(); }
  // FLOPs of the forward and backward products of one step on this rank; causal attention counts
  // half.
  double matmul_flops() const { return matmul_flops(largest()); }
  double matmul_flops(const ShapePlan& shape) const;
  double nominal_flops() const;  // with all scores
  // The collectives of one optimizer step in order: the sums of labels, the program's of each
  // micro-batch (see graph::MicroBatch), the norm, the update's, the sum of losses.
  std::vector<comm::CollectiveCall> collectives() const { return collectives(largest()); }
  std::vector<comm::CollectiveCall> collectives(const ShapePlan& shape) const;
  // The collectives of an evaluation of `sequences` sequences: the gathering of updated parameters,
  // the program's for each batch that the ranks take at once, then those of the totals.
  std::vector<comm::CollectiveCall> evaluation_collectives(const ShapePlan& shape,
                                                           std::int64_t sequences) const;
  // Over the steps and evaluations of all shapes: this rank's channels, and a hash of the
  // collectives.
  std::set<comm::Channel> channels() const;
  std::uint64_t collective_hash() const;
  std::int64_t most_micro_batches() const;
  graph::Sharded sharded() const;
  // Bytes of the leaves of a role by name: the most that any recording needs. Besides parameters,
  // leaves are micro-batch inputs and constants.
  std::map<std::string, std::int64_t> leaves(graph::Role role) const;
  std::map<Field, std::int64_t> batch_elements() const;  // of this rank's part of a batch
};

optim::OptimizerOptions optimizer_of(const StepPlan& plan);

// How much of a plan is made; each extent includes those before it. The memory of a partial plan is
// a lower bound.
enum class Extent : std::uint8_t {
  parameters,  // no programs
  timed,       // a draft of the training program of the largest shape: what predict() reads
  largest,     // that program
  whole,
};

// Plans one rank, for the shapes of batch_shapes() or for `only`, one shape that is a rank's whole
// batch. `dtype`: instead of the configuration's precision. `parameters`: of a plan of the same
// rank that differs at most in recomputation and micro-batches.
StepPlan make_step_plan(const config::Config& config, const comm::Mesh& mesh,
                        std::optional<DType> dtype = {},
                        const std::optional<nn::BatchShape>& only = {},
                        Extent extent = Extent::whole,
                        std::shared_ptr<const ParameterPlan> parameters = {});
void extend(StepPlan& plan, Extent extent);
// Plans the training programs of a whole plan anew with another parallel.expert_bound.
void set_expert_bound(StepPlan& plan, double bound);
comm::DeviceMeshOptions mesh_options(const StepPlan& plan);
// Adds the translator if the validation data is translated. All pipeline stages have the same one.
void add_translator(StepPlan& plan);

}  // namespace tfm::plan
