#pragma once
// A model outside training: logits of whole sequences and of one token after another, the loss and accuracy of labels.
#include <optional>
#include <span>
#include <utility>

#include "device/arena.h"
#include "graph/planner.h"
#include "nn/model.h"

namespace tfm {

// A recording that runs forward only, in memory of its own.
class Forward {
 public:
  // `flat`: this rank's parameters, laid out by model.parameters(); must outlive this, as must what is `given`: memory of leaves that
  // somebody else fills.
  Forward(const Model& model, Recording recording, const std::vector<Value>& outputs, void* flat,
          const std::vector<std::pair<Value, Tensor>>& given = {});
  const Recording& recording() const { return recording_; }
  Tensor leaf(Value v) const { return leaves_[v.id]; }
  Tensor output(Value v) const { return program_.value(v); }
  // Fields of the shape; those that are absent are zero, which of a mask means that all is real.
  void run(const ExecContext& context, const Fields& fields) const;

 private:
  Recording recording_;
  Program program_;
  Arena arena_;
  std::vector<Tensor> leaves_;  // by value
};

// All ranks of the mesh make and call what follows alike.

class Inference {
 public:
  Inference(const Model& model, const Mesh& mesh, void* flat, const BatchShape& shape, std::int64_t vocab_size, int threads,
            DType real = DType::f32);

  const Recording& recording() const { return forward_.recording(); }
  void run(const Fields& fields);
  // Logits of one row over the whole vocabulary, gathered from all tensor ranks.
  std::vector<double> row(std::int64_t index) const;
  // Of the rows whose label is >= 0, after run(): the summed negative log-likelihood, and how often the label has the highest logit
  // (of equal ones the lowest id). The same on all tensor ranks.
  struct Score {
    double loss = 0;
    std::int64_t labels = 0, correct = 0;
  };
  Score score(std::span<const std::int32_t> labels) const;

 private:
  Mesh mesh_;
  cpu::Stream stream_;
  Forward forward_;
  std::int64_t vocab_size_, vocab_begin_;
};

// Sequences that grow: keys and values of what came before are kept, the source is read once.
class Generation {
 public:
  // `shape`: its capacity is the most tokens of a sequence; with a length above 1 as many can be appended at once; a source_length
  // for models that read a source.
  Generation(const Model& model, const Mesh& mesh, void* flat, const BatchShape& shape, std::int64_t vocab_size, int threads,
             DType real = DType::f32);

  // Starts over; of an encoder_decoder, with source_ids and source_mask of its sequences / beams sources.
  void start(const Fields& source = {});
  // Appends one token, or shape().length of them, to every sequence. Afterwards logits() holds what follows, (sequences, vocab_size),
  // equal on all tensor ranks.
  void step(std::span<const std::int32_t> ids);
  std::span<const double> logits() const { return logits_; }
  // Sequence i goes on from what sequence parents[i] was.
  void reorder(std::span<const std::int64_t> parents);

  const BatchShape& shape() const { return shape_; }
  std::int64_t position() const { return position_; }  // tokens of every sequence so far

 private:
  void gather_logits(const Forward& from);

  Mesh mesh_;
  cpu::Stream stream_;
  BatchShape shape_;
  std::optional<Forward> source_, step_, steps_;  // of one token; of shape_.length
  std::vector<std::int32_t> source_mask_;
  std::vector<double> logits_;
  std::int64_t vocab_size_, position_ = 0;
};

}  // namespace tfm
