#pragma once
// Gradient buckets, clipping over all shards, and the update of flat parameters; ZeRO stage 1
// (Rajbhandari et al. 2020) keeps optimizer state for this rank's share of every bucket only.
// 16-bit parameters are copies of master weights, which are such state, too.
#include <optional>

#include "kernels/optimizer.h"
#include "nn/parameter.h"
#include "optim/schedule.h"

namespace tfm::optim {

// A contiguous range of the flat gradients, reduced as one over its axes. Lengths divide by the
// group's size.
struct Bucket {
  comm::AxisSet axes;
  std::int64_t begin = 0, end = 0;
  std::vector<int> parameters;
};

// In the order in which gradients become final: the last registered parameters first.
std::vector<Bucket> make_buckets(const nn::ParameterSet& parameters, const comm::Layout& layout,
                                 std::int64_t bucket_elements);

struct OptimizerOptions {
  enum class Kind : std::uint8_t { adamw, adam, sgd } kind = Kind::adamw;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1, momentum = 0;
  double grad_clip = 0;  // 0: off
  int zero = 0;
  double ema = 0;  // decay of the average of the weights; 0: none
  int states() const { return kind == Kind::sgd ? (momentum > 0 ? 1 : 0) : 2; }
};

class Optimizer {
 public:
  // `tensors`: the mesh for tensors where the flat buffers are.
  Optimizer(const nn::ParameterSet& parameters, const comm::Mesh& mesh, const comm::Mesh& tensors,
            OptimizerOptions options, std::vector<Bucket> buckets, DType dtype);

  const std::vector<Bucket>& buckets() const { return buckets_; }
  const OptimizerOptions& options() const { return options_; }
  std::int64_t state_elements() const {
    return state_elements_;
  }  // of each buffer of this rank's state
  static std::int64_t state_elements(const nn::ParameterSet&, const comm::Layout&,
                                     const OptimizerOptions&, const std::vector<Bucket>&);

  // Memory of this rank; all but the parameters is of the accumulation type of theirs.
  struct Flat {
    void* parameters;  // laid out by the ParameterSet, as are the gradients
    void* gradients;
    void* state[2];  // state_elements() each, as are the rest
    void* master;    // null where the parameters themselves are wide
    void* average;   // null without one
  };
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

  // Runs of this rank's optimizer state: elements [begin, end) of the flat buffers are state
  // elements from `state_offset` on.
  struct StateRange {
    std::int64_t begin, end, state_offset;
    bool decay;
  };
  const std::vector<StateRange>& owned() const { return owned_; }

 private:
  template <class P, class S, class Rule>
  void update_by(const Rule& rule, S& s, const Flat& flat, const StepNumbers* numbers,
                 const StepOutcome* outcome) const;
  template <class T>
  T* weights(const Flat& flat, const StateRange& run) const;  // of a run, wide
  void round(device::AnyStream stream,
             const Flat& flat) const;   // this rank's weights become parameters,
  void gather(const Flat& flat) const;  // which every rank gets
  std::pair<std::int64_t, std::int64_t> share(
      const Bucket& b) const;  // of this rank within its group
  void add_runs(std::int64_t begin, std::int64_t end, std::int64_t state_offset);
  void add_counted(std::int64_t begin, std::int64_t end, comm::AxisSet reduced);
  // f(spec, first, last) for each parameter with elements of the flat buffers in [begin, end).
  template <class F>
  void each_part(std::int64_t begin, std::int64_t end, F&& f) const;
  static Tensor range(void* flat, DType t, std::int64_t begin, std::int64_t end);

  const nn::ParameterSet* parameters_;
  comm::Mesh mesh_, tensors_;
  OptimizerOptions options_;
  std::vector<Bucket> buckets_;
  DType dtype_;
  std::int64_t state_elements_ = 0;
  std::vector<StateRange> owned_;
  std::vector<kernels::Range>
      counted_;  // elements of the gradients that this rank adds to the norm
};

}  // namespace tfm::optim
