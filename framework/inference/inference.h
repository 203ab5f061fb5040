#pragma once
// A model outside training: logits of whole sequences, and of one token after another.
#include <optional>
#include <span>
#include <utility>

#include "comm/device_mesh.h"
#include "inference/forward.h"

namespace tfm::inference {

// The classes below are collective: all ranks of the mesh make and call them alike.

class Inference {
 public:
  // `head`: as of nn::Model::record_logits(); `classes`: those that it tells apart.
  Inference(const nn::Model& model, const comm::RankContext& rank_context, const Weights& weights,
            const nn::BatchShape& shape, std::int64_t classes, std::string_view head = {});

  const nn::Recording& recording() const { return forward_.recording(); }
  void run(const BatchFields& fields);
  // Logits of one row over all classes, gathered from all tensor ranks.
  std::vector<double> row(std::int64_t index);

 private:
  comm::RankContext rank_context_;
  ForwardPass forward_;
  device::Arena arena_;
  std::int64_t classes_;
};

// Sequences that grow token by token. Mixers keep states of earlier tokens, and the source is read
// once.
class Generation {
 public:
  // `shape`: capacity is the most tokens of a sequence; a length above 1 allows appending as many
  // at once; source_length is set for models that read a source. `model` must record without
  // sequence parallelism; the weights may be laid out as with it. `memory`: at least bytes() of
  // device memory, or empty for memory of its own.
  Generation(const nn::Model& model, const comm::RankContext& rank_context, const Weights& weights,
             const nn::BatchShape& shape, std::int64_t vocab_size,
             std::span<std::byte> memory = {});
  static std::int64_t bytes(const nn::Model& model, const nn::BatchShape& shape, DType dtype);

  // Starts over. For an encoder_decoder, `source` has source_ids and source_mask of sequences /
  // beams sources.
  void start(const BatchFields& source = {});
  // Appends one token, or shape().length of them, to every sequence. Afterwards logits() are those
  // of the next token, (sequences, vocab_size), equal on all tensor ranks.
  void step(std::span<const std::int32_t> ids);
  std::span<const double> logits() const { return logits_; }
  // Beam search only: sequence i continues sequence parents[i].
  void reorder(std::span<const std::int64_t> parents);

  const nn::BatchShape& shape() const { return shape_; }
  std::int64_t position() const { return position_; }  // tokens of every sequence so far

 private:
  struct Forwards {
    Forwards(const nn::Model& model, const nn::BatchShape& shape, DType dtype);
    std::int64_t bytes() const;
    // Memory of reorder(), if there are beams: rows of a state, and which rows they are.
    std::pair<std::byte*, std::span<std::int32_t>> lay_out_order(device::Arena& arena) const;
    std::optional<ForwardPass> source, step, steps;  // `step`: one token; `steps`: shape.length
  };
  void run(const ForwardPass& forward, const BatchFields& fields);
  void clear(const Tensor& state);
  void gather_logits(const ForwardPass& from);

  comm::RankContext rank_context_;
  nn::BatchShape shape_;
  Forwards forwards_;
  device::Arena arena_;
  // Scratch of reorder(): rows of a state, and which rows they are.
  std::byte* aside_ = nullptr;
  std::span<std::int32_t> rows_;
  std::vector<std::int32_t> source_mask_;
  std::vector<double> logits_;
  std::int64_t vocab_size_, position_ = 0;
};

}  // namespace tfm::inference
