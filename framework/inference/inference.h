#pragma once
// A model outside training: logits of whole sequences and of one token after another, the loss and
// accuracy of labels.
#include <optional>
#include <span>
#include <utility>

#include "comm/device_mesh.h"
#include "device/arena.h"
#include "graph/planner.h"
#include "nn/model.h"

namespace tfm::inference {

// This rank's parameters, in the memory of its device; both must outlive what works with them.
struct Weights {
  const nn::ParameterSet& places;
  void* flat = nullptr;
  DType real = DType::f32;  // their type
};

// A recording that runs forward only.
class Forward {
 public:
  // Plans, without memory. `given`: leaves that somebody else fills.
  Forward(nn::Recording recording, const std::vector<graph::Value>& outputs,
          std::vector<graph::Value> given = {});
  std::int64_t bytes() const;  // that bind() takes
  // `given`: memory of those leaves, which must outlive this. All memory is the stream's.
  void bind(device::AnyStream stream, const Weights& weights, device::Arena& arena,
            const std::vector<Tensor>& given = {});
  const nn::Recording& recording() const { return recording_; }
  Tensor leaf(graph::Value v) const { return leaves_[v.id]; }
  Tensor output(graph::Value v) const { return program_.value(v); }
  // Fields of the shape; those that are absent are zero, which of a mask means that all is real.
  void run(const graph::ExecContext& context, const Fields& fields) const;

 private:
  bool own(std::size_t value) const;  // an input or constant that is not given

  nn::Recording recording_;
  graph::Program program_;
  std::vector<graph::Value> given_;
  std::vector<Tensor> leaves_;  // by value
};

// All ranks of the mesh make and call what follows alike.

class Inference {
 public:
  Inference(const nn::Model& model, const comm::Site& site, const Weights& weights,
            const nn::BatchShape& shape, std::int64_t vocab_size);

  const nn::Recording& recording() const { return forward_.recording(); }
  void run(const Fields& fields);
  // Logits of one row over the whole vocabulary, gathered from all tensor ranks.
  std::vector<double> row(std::int64_t index);

 private:
  comm::Site site_;
  Forward forward_;
  device::Arena arena_;
  std::int64_t vocab_size_;
};

// Sequences that grow: keys and values of what came before are kept, the source is read once.
class Generation {
 public:
  // `shape`: its capacity is the most tokens of a sequence; with a length above 1 as many can be
  // appended at once; a source_length for models that read a source. `model` records without
  // sequence parallelism, but the weights may lie as under it. `memory`: at least bytes() of the
  // device's, or none for memory of its own.
  Generation(const nn::Model& model, const comm::Site& site, const Weights& weights,
             const nn::BatchShape& shape, std::int64_t vocab_size,
             std::span<std::byte> memory = {});
  static std::int64_t bytes(const nn::Model& model, const nn::BatchShape& shape, DType real);

  // Starts over; of an encoder_decoder, with source_ids and source_mask of its sequences / beams
  // sources.
  void start(const Fields& source = {});
  // Appends one token, or shape().length of them, to every sequence. Afterwards logits() holds what
  // follows, (sequences, vocab_size), equal on all tensor ranks.
  void step(std::span<const std::int32_t> ids);
  std::span<const double> logits() const { return logits_; }
  // Sequence i goes on from what sequence parents[i] was; where there are beams.
  void reorder(std::span<const std::int64_t> parents);

  const nn::BatchShape& shape() const { return shape_; }
  std::int64_t position() const { return position_; }  // tokens of every sequence so far

 private:
  struct Forwards {
    Forwards(const nn::Model& model, const nn::BatchShape& shape, DType real);
    std::int64_t bytes() const;
    std::int64_t longest_cache() const;          // bytes
    std::optional<Forward> source, step, steps;  // of one token; of shape.length
  };
  void run(const Forward& forward, const Fields& fields);
  void gather_logits(const Forward& from);

  comm::Site site_;
  nn::BatchShape shape_;
  Forwards forwards_;
  device::Arena arena_;
  std::byte* aside_ = nullptr;    // of reorder(): rows of a cache,
  std::int32_t* rows_ = nullptr;  // and which they are
  std::vector<std::int32_t> source_mask_;
  std::vector<double> logits_;
  std::int64_t vocab_size_, position_ = 0;
};

}  // namespace tfm::inference
