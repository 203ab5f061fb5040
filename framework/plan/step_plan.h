#pragma once
// A run's static part: model, programs, buckets and one memory plan, made without allocating.
#include <functional>
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

  // The last ranks' sequences past `batch` are padding.
  std::int64_t sequences_per_rank() const { return shape.sequences * micro_batches; }
};

// The micro-batches of a data rank, without programs.
ShapePlan divided(const config::Config& config, const comm::Layout& layout, nn::BatchShape shape);

// Whether steps on a device leave rows of the output layer without a label out. All ranks then take
// as many rows as the micro-batch with the most labels needs: graphs with collectives must be the
// same everywhere.
bool packs_rows(const config::Config& config);

// Whether gradients of each micro-batch are summed over ranks by themselves with every ZeRO stage,
// so that none changes a bit.
bool sums_every_run(const config::Config& config, std::int64_t micro_batches);

// What a rank has of the parameters, whatever it recomputes and the size of its micro-batches.
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
  bool translates = false;  // validation data
  std::shared_ptr<const ParameterPlan> parameters;
  // Records translations of the validation data, if eval.metrics need them.
  std::shared_ptr<const nn::Model> translator;
  std::int64_t translation_bytes = 0;  // of its programs
  std::vector<ShapePlan> shapes;       // as batch_shapes() of the configuration
  device::MemoryPlan memory;           // of the device, see RunMemory
  device::MemoryPlan staging;          // of the host, where the device is another

  const nn::Model& model() const { return *parameters->model; }
  const std::vector<optim::Bucket>& buckets() const { return parameters->buckets; }
  const optim::ShardLayout& shards() const { return parameters->shards; }
  bool on_host() const { return config.device != config::DeviceKind::cuda; }

  std::int64_t objectives() const { return std::ssize(largest().training.losses); }
  // Of their labels, and of their losses.
  comm::CollectiveCall sum_of_objectives() const {
    return {comm::Collective::all_reduce_sum, nn::loss_axes(mesh.layout), 8 * objectives()};
  }
  bool packs_rows() const { return plan::packs_rows(config); }
  comm::CollectiveCall most_labels() const {
    return {comm::Collective::all_reduce_max, nn::loss_axes(mesh.layout), 8 * objectives()};
  }
  // Of the largest shape:
  const ShapePlan& largest() const { return shapes.back(); }
  // Forward and backward products of one step on this rank, causal attention by half.
  double matmul_flops() const { return matmul_flops(largest()); }
  double matmul_flops(const ShapePlan& shape) const;
  double nominal_flops() const;  // causal attention in full
  // Collectives of one optimizer step in order: the program's once per micro-batch, see
  // graph::MicroBatch, then the update's.
  std::vector<comm::CollectiveCall> collectives() const { return collectives(largest()); }
  std::vector<comm::CollectiveCall> collectives(const ShapePlan& shape) const;
  // Of an evaluation of so many sequences: the gathering of updated parameters, its program's for
  // each batch that the ranks take at once, then those of the totals.
  std::vector<comm::CollectiveCall> evaluation_collectives(const ShapePlan& shape,
                                                           std::int64_t sequences) const;
  // Of all shapes' steps and evaluations:
  std::set<comm::Channel> channels() const;
  std::uint64_t collective_hash() const;
  std::int64_t most_micro_batches() const;
  graph::Sharded sharded() const;
  // Leaves of a role, once by name, in bytes: parameters aside, they are micro-batch inputs and
  // constants.
  std::map<std::string, std::int64_t> leaves(graph::Role role) const;
  std::map<Field, std::int64_t> batch_elements() const;  // of this rank's part of a batch
};

optim::OptimizerOptions optimizer_of(const StepPlan& plan);

// How much of a plan is made, each part with those before it. Its memory is that of a run of no
// more: a lower bound.
enum class Extent : std::uint8_t {
  parameters,  // no programs
  timed,       // a draft of the training program of the largest shape: what predict() reads
  largest,     // that program
  whole,
};

// Of batch_shapes(), or of one shape of a rank's own, which is then its whole batch.
// `dtype`: instead of the configuration's precision. `parameters`: of a plan of the same rank that
// differs in no more than recomputation and micro-batches.
StepPlan make_step_plan(const config::Config& config, const comm::Mesh& mesh,
                        std::optional<DType> dtype = {},
                        const std::optional<nn::BatchShape>& only = {},
                        Extent extent = Extent::whole,
                        std::shared_ptr<const ParameterPlan> parameters = {});
void extend(StepPlan& plan, Extent extent);
comm::DeviceMeshOptions mesh_options(const StepPlan& plan);
// Where the validation data is translated. All stages of a pipeline have the same translator.
void add_translator(StepPlan& plan);

}  // namespace tfm::plan
