#pragma once
// A forward pass: recorded, planned, bound to memory, and run for one batch after another. It gives
// logits, or a loss and the number of labels predicted correctly.
#include "device/arena.h"
#include "graph/planner.h"
#include "inference/totals.h"
#include "nn/model.h"

namespace tfm::inference {

// This rank's parameters in device memory. Both must outlive what uses them.
struct Weights {
  const nn::ParameterSet& places;
  void* flat = nullptr;
  DType dtype = DType::f32;  // of the parameters
};

// Writes a recording's constants to `leaves`, indexed by value.
void fill_constants(device::AnyStream stream, const nn::Recording& recording,
                    const std::vector<Tensor>& leaves);

class ForwardPass {
 public:
  struct Options {
    std::vector<graph::Value> given = {};  // leaves that the caller fills
    bool device = false;                   // planned for a GPU
    // Buckets in which parameters are gathered; empty: they are whole.
    std::vector<graph::BucketUse> buckets = {};
  };
  ForwardPass() = default;
  // Plans the pass; takes no memory.
  ForwardPass(nn::Recording recording, const std::vector<graph::Value>& outputs,
              const Options& options);
  ForwardPass(nn::Recording recording, const std::vector<graph::Value>& outputs)
      : ForwardPass(std::move(recording), outputs, {}) {}
  // The loss over the labels of a batch, without label smoothing: for totals().
  static ForwardPass loss(const nn::Model& model, const nn::BatchShape& shape, DType dtype,
                          const Options& options);
  static ForwardPass logits(const nn::Model& model, const nn::BatchShape& shape, DType dtype,
                            std::string_view head = {});

  std::int64_t bytes() const;  // memory that bind() takes
  // Takes memory from `arena`. `given`: memory of Options::given, which must outlive this. All
  // memory is the stream's.
  void bind(device::AnyStream stream, const Weights& weights, device::Arena& arena,
            const std::vector<Tensor>& given = {});
  // Binds to memory of the caller: of every leaf, by value; activations of program().arena_bytes();
  // and this rank's shares of the parameters if Options::buckets gather them.
  void bind(device::AnyStream stream, std::vector<Tensor> leaves, std::byte* activations,
            std::vector<Tensor> bucket_parameters = {});

  const nn::Recording& recording() const { return recording_; }
  const graph::Program& program() const { return program_; }
  Tensor leaf(graph::Value v) const { return leaves_[v.id]; }
  Tensor output(graph::Value v) const { return program_.value(v); }
  // `fields`: of the recorded shape. Absent ones are zero; a zero mask means that all is real.
  void run(const graph::ExecContext& context, const BatchFields& fields) const;
  // Runs a pass made by loss(). The totals are of this rank's sequences alone.
  Totals totals(const graph::ExecContext& context, const BatchFields& fields) const;

 private:
  bool own(std::size_t value) const;  // an input or constant that is not given
  // Takes memory for own leaves, stored by value, and for activations, which is returned.
  std::byte* lay_out(device::Arena& arena, std::vector<Tensor>& leaves) const;

  nn::Recording recording_;
  graph::Program program_;
  std::vector<graph::Value> given_;
  std::vector<Tensor> leaves_;  // by value
};

}  // namespace tfm::inference
