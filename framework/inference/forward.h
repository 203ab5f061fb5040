#pragma once
// A forward pass: recorded, planned, bound to memory, and run for one batch after another. It gives
// logits, or a loss and how many labels were predicted.
#include "device/arena.h"
#include "graph/planner.h"
#include "inference/totals.h"
#include "nn/model.h"

namespace tfm::inference {

// This rank's parameters, in the memory of its device; both must outlive what works with them.
struct Weights {
  const nn::ParameterSet& places;
  void* flat = nullptr;
  DType dtype = DType::f32;  // their type
};

// Writes a recording's constants; `leaves`: by value.
void fill_constants(device::AnyStream stream, const nn::Recording& recording,
                    const std::vector<Tensor>& leaves);

class ForwardPass {
 public:
  struct Options {
    std::vector<graph::Value> given = {};        // leaves that somebody else fills
    bool device = false;                         // planned for a GPU
    std::vector<graph::BucketUse> buckets = {};  // in which parameters are gathered; empty: they
                                                 // are there
  };
  ForwardPass() = default;
  // Plans, without memory.
  ForwardPass(nn::Recording recording, const std::vector<graph::Value>& outputs,
              const Options& options);
  ForwardPass(nn::Recording recording, const std::vector<graph::Value>& outputs)
      : ForwardPass(std::move(recording), outputs, {}) {}
  // Of the labels of a batch, without label smoothing: for totals().
  static ForwardPass loss(const nn::Model& model, const nn::BatchShape& shape, DType dtype,
                          const Options& options);
  static ForwardPass logits(const nn::Model& model, const nn::BatchShape& shape, DType dtype);

  std::int64_t bytes() const;  // that bind() takes
  // `given`: memory of those leaves, which must outlive this. All memory is the stream's.
  void bind(device::AnyStream stream, const Weights& weights, device::Arena& arena,
            const std::vector<Tensor>& given = {});
  // In memory of somebody else: of every leaf, by value, of program().arena_bytes(), and of this
  // rank's shares of the parameters where Options::buckets gather them.
  void bind(device::AnyStream stream, std::vector<Tensor> leaves, std::byte* activations,
            std::vector<Tensor> bucket_parameters = {});

  const nn::Recording& recording() const { return recording_; }
  const graph::Program& program() const { return program_; }
  Tensor leaf(graph::Value v) const { return leaves_[v.id]; }
  Tensor output(graph::Value v) const { return program_.value(v); }
  // `fields`: of the shape; those that are absent are zero, which of a mask means that all is real.
  void run(const graph::ExecContext& context, const BatchFields& fields) const;
  // Runs a pass of the loss; of this rank's sequences alone.
  Totals totals(const graph::ExecContext& context, const BatchFields& fields) const;

 private:
  bool own(std::size_t value) const;  // an input or constant that is not given
  // The memory of own leaves, by value, and of activations, which is returned.
  std::byte* lay_out(device::Arena& arena, std::vector<Tensor>& leaves) const;

  nn::Recording recording_;
  graph::Program program_;
  std::vector<graph::Value> given_;
  std::vector<Tensor> leaves_;  // by value
};

}  // namespace tfm::inference
