#pragma once
// Gradient buckets, clipping over all shards, and the update of flat parameters. ZeRO (Rajbhandari
// et al. 2020) keeps of every bucket this rank's share only: of optimizer state in stage 1, of
// gradients, too, in stage 2, and of parameters in stage 3. 16-bit parameters are copies of master
// weights, which are such state.
#include "kernels/optimizer.h"
#include "optim/schedule.h"
#include "optim/shards.h"

namespace tfm::optim {

struct OptimizerOptions {
  std::shared_ptr<const Rule> rule;
  double grad_clip = 0;  // 0: off
  int zero = 0;
  graph::Sharded sharded;
  double ema = 0;  // decay of the average of the weights; 0: none
};

// `alike`: gradients of several micro-batches are added up in one order with every stage: each
// micro-batch's sum over the ranks to those before. Stage 1 then keeps shares of gradients, too.
graph::Sharded sharded_by(int zero, bool alike);

comm::CollectiveCall sum_of_norm();
// The rule's, then the gathering of the buckets that lend a parameter, and the messages with these.
std::vector<comm::CollectiveCall> update_collectives(const nn::ParameterSet& parameters,
                                                     const comm::Layout& layout,
                                                     const OptimizerOptions& options,
                                                     const std::vector<Bucket>& buckets,
                                                     DType dtype);
// Of Optimizer::gather().
std::vector<comm::CollectiveCall> gather_collectives(const nn::ParameterSet& parameters,
                                                     const OptimizerOptions& options,
                                                     const std::vector<Bucket>& buckets,
                                                     DType dtype);

class Optimizer {
 public:
  // `tensors`: the mesh for tensors where the flat buffers are.
  Optimizer(const nn::ParameterSet& parameters, const comm::Mesh& mesh, const comm::Mesh& tensors,
            OptimizerOptions options, std::vector<Bucket> buckets, DType dtype);

  const std::vector<Bucket>& buckets() const { return buckets_; }
  const OptimizerOptions& options() const { return options_; }
  const ShardLayout& shards() const { return shards_; }
  std::int64_t workspace_bytes() const { return workspace_bytes_; }  // of the rule
  using Flat = FlatBuffers;
  // The weights or gradients of a parameter that this rank owns, or borrows, where they are whole.
  Tensor parameter(const Flat& flat, int i) const;
  Tensor gradient(const Flat& flat, int i) const;
  // Of the buckets, whose gradients are to be reduced before measure(): whole, or this rank's
  // shares.
  std::vector<Tensor> bucket_gradients(const Flat& flat) const;
  std::vector<Tensor> bucket_parameters(const Flat& flat) const;
  // Of an update, counted from 1; the average's decay is at most (1 + update) / (10 + update).
  UpdateNumbers numbers(std::int64_t update, double lr) const;
  // Norm of the whole gradient, each parameter once, whatever the layout; with it what update()
  // does. Where the collectives are work of the stream, so is all of this. `numbers` and `outcome`:
  // in its memory.
  void measure(device::AnyStream stream, const Flat& flat, const StepNumbers* numbers,
               StepOutcome* outcome) const;
  // Under ZeRO 1 and 2 the parameters of others' shares stay as they were until they are gathered:
  // by the next step's program, or by gather().
  void update(device::AnyStream stream, const Flat& flat, const StepNumbers* numbers,
              const StepOutcome* outcome) const;
  void gather(const Flat& flat) const;
  // `count` of the weights that this rank updates, from element `first` of a range on, in the
  // accumulation type of the parameters, from and to memory of the host. Their average starts anew
  // with weights that are set; spread() is to follow. `staging` has room for as many weights.
  void get_weights(device::AnyStream stream, const Flat& flat, const StateRange& range,
                   std::int64_t first, std::int64_t count, void* to) const;
  void set_weights(device::AnyStream stream, const Flat& flat, const StateRange& range,
                   std::int64_t first, std::int64_t count, const void* from,
                   std::byte* staging) const;
  // Where a range of them lies: one piece of memory, or two halves (core/master_weights.h).
  std::vector<std::span<std::byte>> weight_memory(const Flat& flat, const StateRange& range) const;
  void spread(const Flat& flat) const;  // whole parameters, to every rank
  // All parameters, laid out by the ParameterSet, where ranks have shares of them.
  void gather_into(const Flat& flat, void* parameters) const;
  void swap_average(device::AnyStream stream, const Flat& flat)
      const;  // exchanges the weights with their average, if there is one

 private:
  Update update_of(device::AnyStream stream, const Flat& flat, const StepNumbers* numbers,
                   const StepOutcome* outcome, comm::Calls* calls) const;
  Tensor whole(const Flat& flat, const Bucket& bucket) const;
  Tensor lent(const Flat& flat, int i) const;  // by this rank, or to it
  // Parameters to every stage that borrows them.
  void lend(comm::Calls& calls, const Flat& flat) const;
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
  std::vector<kernels::Range>
      counted_;  // elements of the gradients that this rank adds to the norm
};

}  // namespace tfm::optim
