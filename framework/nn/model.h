#pragma once
// What a trainer needs of a model: its parameters, and recordings of its loss and its logits.
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "core/batch.h"
#include "nn/layers.h"

namespace tfm::nn {

enum class Mask : std::uint8_t {
  none,       // every position is real
  padding,    // `mask` (N): negative where a position is no key
  documents,  // `mask` (N): positions see those of the same value only; negative: padding
};

// A micro-batch of one rank.
struct BatchShape {
  std::int64_t sequences = 0;      // B
  std::int64_t length = 0;         // T: of ids and labels
  std::int64_t source_length = 0;  // S: of an encoder_decoder's source
  Mask mask = Mask::none;          // of ids; encoders and sources always have a padding mask
  bool right_padded = false;       // in every mask padding stands behind all that is real
  // Of a recording of new tokens (length of them a sequence):
  std::int64_t capacity = 0;  // positions of the caches
  std::int64_t beams = 1;     // sequences that follow each other and share a source
  SequenceShare share = {};   // of each sequence, and of its source

  Rows rows() const { return {sequences, length, share}; }
  Rows source_rows() const { return {div_exact(sequences, beams), source_length, share}; }
  std::int64_t width(Field field) const {  // elements of a sequence
    switch (info_of(field).width) {
      case FieldWidth::length:
        return length;
      case FieldWidth::source_length:
        return source_length;
      case FieldWidth::one:
        return 1;
    }
    internal_error("not a width of a field");
  }
  std::int64_t own_width(Field field) const {  // those that a rank has
    return info_of(field).by_position() ? Rows{1, width(field), share}.tokens() : width(field);
  }
  auto operator<=>(const BatchShape&) const = default;
};

// One recorded computation.
struct Recording {
  std::shared_ptr<graph::Recorder> tape;
  BatchShape shape;
  std::set<Field> fields;  // of a batch, that the model reads
  // Those that this rank's stage reads, for all its tokens of the micro-batch on every tensor rank;
  // of sequences that ranks share out in the order of core/rows.h.
  std::map<Field, graph::Value> inputs;
  // The terms of the loss, as many on every stage of a pipeline; the gradient of each is scaled by
  // StepNumbers::gradient_scale[index].
  struct Loss {
    graph::Value value;  // (1) f64, summed over the labels >= 0; absent where another stage has it
    Field labels;
    graph::Value correct;  // (1) f64: how many of them are the most likely id; absent in training
  };
  std::vector<Loss> losses;
  graph::Value
      logits;  // (N, this rank's rows of the vocabulary); only from record_logits and record_decode
  // Keys and values of each decoder layer on this rank, 2 KV D wide:
  std::vector<graph::Value> caches;  // (B capacity): leaves of record_decode
  std::vector<graph::Value>
      cross_kv;  // (source tokens): made by record_encoder, leaves of record_decode

  Recording() = default;
  Recording(const BatchShape& shape, DType dtype)
      : tape(std::make_shared<graph::Recorder>(dtype)), shape(shape) {}
  // `here`: whether this rank's stage reads it.
  graph::Value input(Field field, bool here = true) {
    fields.insert(field);
    if (!here) return {};
    const std::int64_t sequences = info_of(field).width == FieldWidth::source_length
                                       ? shape.source_rows().sequences
                                       : shape.sequences;
    return inputs[field] = tape->input(std::string(info_of(field).name),
                                       {sequences * shape.own_width(field)}, DType::i32);
  }
  void loss_elsewhere(Field labels) { losses.push_back({{}, labels, {}}); }
  std::vector<graph::Value> outputs() const {  // of a loss
    std::vector<graph::Value> all;
    for (const Loss& l : losses)
      for (const graph::Value v : {l.value, l.correct})
        if (v) all.push_back(v);
    return all;
  }
};

class Model {
 public:
  virtual ~Model() = default;
  virtual ParameterSet& parameters() = 0;
  const ParameterSet& parameters() const { return const_cast<Model*>(this)->parameters(); }
  // Of training with dropout and label smoothing; otherwise the negative log-likelihood.
  virtual Recording record_loss(const BatchShape& shape, DType dtype, bool training) const = 0;
  virtual Recording record_logits(const BatchShape& shape, DType dtype) const = 0;
  // Generation: the logits of new tokens from StepState::first_position on, read beside the caches,
  // which it extends. Without sequence parallelism. Encoders have none.
  virtual Recording record_decode(const BatchShape& shape, DType dtype) const = 0;
  // What the decoder of an encoder_decoder reads of the source, for all of record_decode.
  virtual Recording record_encoder(const BatchShape& shape, DType dtype) const = 0;
};

}  // namespace tfm::nn
