#pragma once
// Interface of a model: its parameters, and recordings of its loss and its logits.
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "core/batch.h"
#include "nn/mixer.h"

namespace tfm::nn {

enum class Mask : std::uint8_t {
  none,       // every position is real
  padding,    // `mask` (N): negative at padding, which is hidden from attention
  documents,  // `mask` (N): positions see only those of the same value; negative: padding
};

// Shape of a rank's micro-batch.
struct BatchShape {
  std::int64_t sequences = 0;      // B
  std::int64_t length = 0;         // T, of ids and labels
  std::int64_t source_length = 0;  // S, of the source of an encoder-decoder
  Mask mask = Mask::none;          // of ids; encoders and sources always have a padding mask
  bool restarts = false;           // of Mask::documents: positions restart with each document
  bool right_padded = false;       // in every mask, padding comes after all real positions
  double labelled = 1;             // expected share of rows with a label
  // Consecutive sequences that belong together: a query, its document, and perhaps a negative.
  std::int64_t texts = 1;
  // Only for record_decode, with `length` new tokens per sequence:
  std::int64_t capacity = 0;  // positions of the growing states
  std::int64_t beams = 1;     // number of consecutive sequences that share a source
  SequenceShare share = {};   // this rank's share of each sequence and of its source
  // In training: rows for which expert-parallel ranks have room, see config::ParallelConfig.
  double expert_bound = 0;

  Rows rows() const { return {sequences, length, share}; }
  Rows source_rows() const { return {div_exact(sequences, beams), source_length, share}; }
  // Elements of a field per sequence.
  std::int64_t width(Field field) const {
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
  // Elements of a field per sequence that this rank holds.
  std::int64_t own_width(Field field) const {
    return info_of(field).by_position() ? Rows{1, width(field), share}.tokens() : width(field);
  }
  auto operator<=>(const BatchShape&) const = default;
};

// One recorded computation.
struct Recording {
  std::shared_ptr<graph::Recorder> tape;
  BatchShape shape;
  std::set<Field> fields;  // fields of a batch that the model reads
  // The fields that this rank's stages read. Tensor ranks hold them for all tokens; under context
  // parallelism, rows are in the order of core/rows.h.
  std::map<Field, graph::Value> inputs;
  // Terms of the loss, the same number on every pipeline stage. The gradient of each is scaled by
  // StepNumbers::gradient_scale[index].
  struct Loss {
    std::string name;    // of its metrics
    double weight = 1;   // of its mean in the whole loss
    graph::Value value;  // (1) f64, a sum; absent if another stage computes it
    // The sum's mean is over the labels of this field, or of a term without labels over
    // `per_sequence` for each sequence of the batch and `per_batch`.
    std::optional<Field> labels = {};
    std::int64_t per_sequence = 0, per_batch = 0;  // on this rank
    // (1) f64, number of labels that are the most likely id; absent in training, and of a term that
    // predicts nothing.
    graph::Value correct = {};
  };
  std::vector<Loss> losses;
  RouterTerms router_terms;  // before they are among the losses
  // (rows, this rank's share of the classes), a row for each token or, of classes of sequences, for
  // each sequence; only from record_logits and record_decode.
  graph::Value logits;
  // What mixers keep in a generation, in the order of layers: leaves of record_decode; those of
  // kind `source` are made by record_encoder.
  struct State {
    graph::Value value;
    StateSpec::Kind kind;
    std::int64_t rows = 0;  // of a sequence
  };
  std::vector<State> states;
  // Adds leaves of these states.
  std::vector<graph::Value> add_states(const std::vector<StateSpec>& specs) {
    std::vector<graph::Value> leaves;
    for (const StateSpec& s : specs) {
      const bool source = s.kind == StateSpec::Kind::source;
      const std::int64_t each = source ? 0 : s.rows(shape.capacity),
                         rows = source ? shape.source_rows().tokens() : shape.sequences * each;
      leaves.push_back(tape->input("state." + std::to_string(states.size()), {rows, s.width},
                                   s.wide ? accum_type(tape->dtype()) : tape->dtype()));
      states.push_back({leaves.back(), s.kind, each});
    }
    return leaves;
  }
  std::vector<graph::Value> source_states() const { return states_of(true); }
  std::vector<graph::Value> own_states() const { return states_of(false); }  // of each sequence

  Recording() = default;
  Recording(const BatchShape& shape, DType dtype)
      : tape(std::make_shared<graph::Recorder>(dtype)), shape(shape) {}
  // Registers a field; makes an input of it if this rank's stages read it (`here`).
  graph::Value input(Field field, bool here = true) {
    fields.insert(field);
    if (!here) return {};
    if (const auto found = inputs.find(field); found != inputs.end()) return found->second;
    const std::int64_t sequences = info_of(field).width == FieldWidth::source_length
                                       ? shape.source_rows().sequences
                                       : shape.sequences;
    return inputs[field] = tape->input(std::string(info_of(field).name),
                                       {sequences * shape.own_width(field)}, DType::i32);
  }
  void loss_elsewhere(const std::string& name, double weight, Field labels) {
    losses.push_back({.name = name, .weight = weight, .labels = labels});
  }
  // What the host reads: values and counts of all losses on this rank, and what routers leave.
  std::vector<graph::Value> outputs() const {
    std::vector<graph::Value> all;
    for (const Loss& l : losses)
      for (const graph::Value v : {l.value, l.correct})
        if (v) all.push_back(v);
    if (router_terms.excess) all.push_back(router_terms.excess);
    all.insert(all.end(), router_terms.loads.begin(), router_terms.loads.end());
    return all;
  }

 private:
  std::vector<graph::Value> states_of(bool source) const {
    std::vector<graph::Value> some;
    for (const State& s : states)
      if ((s.kind == StateSpec::Kind::source) == source) some.push_back(s.value);
    return some;
  }
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const ParameterSet& parameters() const = 0;
  // The loss: in training with dropout and label smoothing, else the negative log-likelihood.
  virtual Recording record_loss(const BatchShape& shape, DType dtype, bool training) const = 0;
  // `head`: the name of the head whose logits are recorded; empty: the one that predicts tokens.
  virtual Recording record_logits(const BatchShape& shape, DType dtype,
                                  std::string_view head) const = 0;
  // Generation: logits of new tokens at positions from StepState::first_position on, which read and
  // update the states. Not with sequence parallelism. An internal error for encoders.
  virtual Recording record_decode(const BatchShape& shape, DType dtype) const = 0;
  // Makes the states of an encoder-decoder's source for record_decode. An internal error for other
  // models.
  virtual Recording record_encoder(const BatchShape& shape, DType dtype) const = 0;
};

}  // namespace tfm::nn
