#pragma once
// Gradient buckets, clipping over all shards, and the update of flat parameters; ZeRO stage 1
// (Rajbhandari et al. 2020) keeps optimizer state for this rank's share of every bucket only.
// 16-bit parameters are copies of master weights, which are such state, too.
#include "kernels/optimizer.h"
#include "optim/schedule.h"
#include "optim/shards.h"

namespace tfm::optim {

struct OptimizerOptions {
  std::shared_ptr<const Rule> rule;
  double grad_clip = 0;  // 0: off
  int zero = 0;
  double ema = 0;  // decay of the average of the weights; 0: none
};

// The rule's and then, under ZeRO, the gathering of the parameters.
std::vector<comm::CollectiveCall> update_collectives(const nn::ParameterSet& parameters,
                                                     const comm::Layout& layout,
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
  using Flat = FlatBuffers;
  // Of the buckets, which are to be reduced before measure().
  std::vector<Tensor> bucket_gradients(const Flat& flat) const;
  // Of an update, counted from 1; the average's decay is at most (1 + update) / (10 + update).
  UpdateNumbers numbers(std::int64_t update, double lr) const;
  // Norm of the whole gradient, each parameter once, whatever the layout; with it what update()
  // does. Where the collectives are work of the stream, so is all of this. `numbers` and `outcome`:
  // in its memory.
  void measure(device::AnyStream stream, const Flat& flat, const StepNumbers* numbers,
               StepOutcome* outcome) const;
  void update(device::AnyStream stream, const Flat& flat, const StepNumbers* numbers,
              const StepOutcome* outcome) const;
  // Takes over weights of the accumulation type laid out by the ParameterSet (parameters or
  // gradients may be their memory); the average starts from them.
  void adopt(device::AnyStream stream, const Flat& flat, const void* weights) const;
  void swap_average(device::AnyStream stream, const Flat& flat)
      const;  // exchanges the weights with their average, if there is one

 private:
  Update update_of(device::AnyStream stream, const Flat& flat, const StepNumbers* numbers,
                   const StepOutcome* outcome) const;
  void round(device::AnyStream stream,
             const Flat& flat) const;   // this rank's weights become parameters,
  void gather(const Flat& flat) const;  // which every rank gets
  void add_counted(std::int64_t begin, std::int64_t end);
  static Tensor range(void* flat, DType t, std::int64_t begin, std::int64_t end);

  const nn::ParameterSet* parameters_;
  comm::Mesh mesh_, tensors_;
  OptimizerOptions options_;
  std::vector<Bucket> buckets_;
  DType dtype_;
  ShardLayout shards_;
  std::vector<kernels::Range>
      counted_;  // elements of the gradients that this rank adds to the norm
};

}  // namespace tfm::optim
