#pragma once
// Gradient buckets, clipping over all shards, and the update of flat parameters; ZeRO stage 1 (Rajbhandari et al. 2020) keeps
// optimizer state for this rank's share of every bucket only.
#include <optional>

#include "nn/parameter.h"
#include "optim/schedule.h"

namespace tfm {

// A contiguous range of the flat gradients, reduced as one over its axis. Lengths divide by the group's size.
struct Bucket {
  Axis axis = Axis::data;
  std::int64_t begin = 0, end = 0;
  std::vector<int> parameters;
};

// In the order in which gradients become final: the last registered parameters first.
std::vector<Bucket> make_buckets(const ParameterSet& parameters, const Layout& layout, std::int64_t bucket_elements);
int group_size(const Layout& layout, Axis axis);

struct OptimizerOptions {
  enum class Kind : std::uint8_t { adamw, adam, sgd } kind = Kind::adamw;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1, momentum = 0;
  double grad_clip = 0;  // 0: off
  int zero = 0;
  int states() const { return kind == Kind::sgd ? (momentum > 0 ? 1 : 0) : 2; }
};

class Optimizer {
 public:
  Optimizer(const ParameterSet& parameters, const Mesh& mesh, OptimizerOptions options, std::vector<Bucket> buckets, DType real);

  const std::vector<Bucket>& buckets() const { return buckets_; }
  std::int64_t state_elements() const { return state_elements_; }  // of each of options.states() buffers on this rank
  static std::int64_t state_elements(const ParameterSet&, const Layout&, const OptimizerOptions&, const std::vector<Bucket>&);

  struct Flat {
    void* parameters;
    void* gradients;
    void* state[2];
  };
  // Starts / completes the reduction of bucket gradients; every bucket started must be finished before update().
  void reduce_start(int bucket, const Flat& flat) const;
  void reduce_finish() const;
  // Norm of the whole gradient, each parameter once, whatever the layout.
  double gradient_norm(AnyStream stream, const Flat& flat) const;
  // One update; `norm` decides the clip factor as torch.nn.utils.clip_grad_norm_ does. `step` counts updates from 1.
  void update(AnyStream stream, const Flat& flat, std::int64_t step, double lr, double norm) const;

  // Runs of this rank's optimizer state: elements [begin, end) of the flat buffers are state elements from `state_offset` on.
  struct Run {
    std::int64_t begin, end, state_offset;
    bool decay, counted;  // counted: this rank adds it to the gradient's norm
  };
  const std::vector<Run>& owned() const { return owned_; }

 private:
  template <class T> void update_as(cpu::Stream& s, const Flat& flat, std::int64_t step, double lr, double clip) const;
  template <class T> double norm_as(cpu::Stream& s, const Flat& flat) const;
  std::pair<std::int64_t, std::int64_t> share(const Bucket& b) const;  // of this rank within its group
  void add_runs(std::int64_t begin, std::int64_t end, std::int64_t state_offset, bool world, std::vector<Run>& runs) const;
  Tensor range(void* flat, std::int64_t begin, std::int64_t end) const;

  const ParameterSet* parameters_;
  Mesh mesh_;
  OptimizerOptions options_;
  std::vector<Bucket> buckets_;
  DType real_;
  std::int64_t state_elements_ = 0;
  std::vector<Run> owned_, shared_;  // updated here; this rank's share for the norm
};

}  // namespace tfm
