#pragma once
// Gradient buckets, clipping over all shards, and the update of flat parameters. Under ZeRO
// (Rajbhandari et al. 2020) a rank keeps only its share of every bucket: of optimizer state in
// stage 1, also of gradients in stage 2, also of parameters in stage 3. Master weights of 16-bit
// parameters count as optimizer state.
#include "kernels/optimizer.h"
#include "optim/schedule.h"
#include "optim/shards.h"

namespace tfm::optim {

struct OptimizerOptions {
  std::shared_ptr<const Rule> rule, load_rule;
  double grad_clip = 0;  // 0: off
  int zero = 0;
  graph::Sharded sharded;
  double ema = 0;  // decay of the average of the weights; 0: no average
};

// Sharding by ZeRO stage. `alike`: gradients of several micro-batches are summed in the same order
// in every stage: each micro-batch's sum over ranks is added to those before. Stage 1 then also
// shards gradients.
graph::Sharded sharded_by(int zero, bool alike);

// The all-reduce of measure().
comm::CollectiveCall sum_of_norm();
// Collectives of Optimizer::update(): the rule's, then the gathering of buckets that lend
// parameters (ZeRO) and the messages that carry lent parameters.
std::vector<comm::CollectiveCall> update_collectives(const nn::ParameterSet& parameters,
                                                     const comm::Layout& layout,
                                                     const OptimizerOptions& options,
                                                     const std::vector<Bucket>& buckets,
                                                     DType dtype);
// Collectives of Optimizer::gather().
std::vector<comm::CollectiveCall> gather_collectives(const nn::ParameterSet& parameters,
                                                     const OptimizerOptions& options,
                                                     const std::vector<Bucket>& buckets,
                                                     DType dtype);

class Optimizer {
 public:
  // `tensors`: mesh whose collectives take tensors in the memory of the flat buffers.
  // `shards`: shard_layout() of these buckets.
  Optimizer(const nn::ParameterSet& parameters, const comm::Mesh& mesh, const comm::Mesh& tensors,
            OptimizerOptions options, std::vector<Bucket> buckets, ShardLayout shards, DType dtype);

  const std::vector<Bucket>& buckets() const { return buckets_; }
  const OptimizerOptions& options() const { return options_; }
  const ShardLayout& shards() const { return shards_; }
  std::int64_t workspace_bytes() const { return workspace_bytes_; }  // of the rule
  // Weights and gradient of a parameter that this rank owns or borrows; owned ones must not be
  // sharded.
  Tensor parameter(const FlatBuffers& flat, int i) const;
  Tensor gradient(const FlatBuffers& flat, int i) const;
  // Tensors of the buckets: whole or, if sharded, this rank's shares. Gradients must be reduced
  // before measure().
  std::vector<Tensor> bucket_gradients(const FlatBuffers& flat) const;
  std::vector<Tensor> bucket_parameters(const FlatBuffers& flat) const;
  // Numbers of an update, counted from 1. The average's decay is at most
  // (1 + update) / (10 + update).
  UpdateNumbers numbers(std::int64_t update, double lr) const;
  // Computes the norm of the whole gradient, in which each parameter counts once in any layout, and
  // decides what update() does. Enqueued on the stream as a whole if collectives are. `numbers` and
  // `outcome` are in device memory.
  void measure(device::AnyStream stream, const FlatBuffers& flat, const StepNumbers* numbers,
               StepOutcome* outcome) const;
  // Updates this rank's weights and sends lent parameters to their borrowers. Under ZeRO 1 and 2,
  // the shares of other ranks are stale until they are gathered by the next step's program or
  // gather().
  void update(device::AnyStream stream, const FlatBuffers& flat, const StepNumbers* numbers,
              const StepOutcome* outcome) const;
  void gather(const FlatBuffers& flat) const;
  // Copy elements [first, first + count) of a range of this rank's weights to and from host memory,
  // in the accumulation type. set_weights() also resets their average to them and must be followed
  // by spread(); `staging` has room for `count` weights.
  void get_weights(device::AnyStream stream, const FlatBuffers& flat, const StateRange& range,
                   std::int64_t first, std::int64_t count, void* to) const;
  void set_weights(device::AnyStream stream, const FlatBuffers& flat, const StateRange& range,
                   std::int64_t first, std::int64_t count, const void* from,
                   std::byte* staging) const;
  // Memory of a range of weights: one piece or, for bf16, parameters and remainders
  // (core/master_weights.h).
  std::vector<std::span<std::byte>> weight_memory(const FlatBuffers& flat,
                                                  const StateRange& range) const;
  // After weights change outside of update(): gathers this rank's shares where parameters are whole
  // (ZeRO 1 and 2), and sends lent parameters to their borrowers.
  void spread(const FlatBuffers& flat) const;
  // Gathers sharded parameters into a buffer laid out by the ParameterSet.
  void gather_into(const FlatBuffers& flat, void* parameters) const;
  // Exchanges the weights with their average, if there is one.
  void swap_average(device::AnyStream stream, const FlatBuffers& flat) const;

 private:
  Tensor whole(const FlatBuffers& flat, const Bucket& bucket) const;
  Tensor lent(const FlatBuffers& flat, int i) const;  // a parameter lent by this rank or to it
  // Sends parameters to every stage that borrows them.
  void lend(comm::Calls& calls, const FlatBuffers& flat) const;
  void add_counted(std::int64_t begin, std::int64_t end, std::int64_t at);
  std::vector<Tensor> of_buckets(void* flat, DType type, bool sharded) const;

  const nn::ParameterSet* parameters_;
  comm::Mesh mesh_, tensors_;
  OptimizerOptions options_;
  std::vector<Bucket> buckets_;
  DType dtype_;
  ShardLayout shards_;
  std::int64_t workspace_bytes_;
  std::vector<comm::CollectiveCall> update_calls_, gather_calls_, lend_calls_;
  // Ranges of the gradients that this rank adds to the norm.
  std::vector<kernels::Range> counted_;
};

}  // namespace tfm::optim
