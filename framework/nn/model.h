#pragma once
// What a trainer needs of a model: its parameters, and recordings of its loss and its logits.
#include <functional>
#include <memory>

#include "nn/layers.h"

namespace tfm {

// One recorded computation. Inputs are int32: ids and labels (N), N = all tokens of the micro-batch on every rank.
struct Recording {
  std::shared_ptr<Recorder> tape;
  Value ids, labels;
  Value loss;    // (1) f64, summed over labels >= 0
  Value logits;  // (N, this rank's rows of the vocabulary); only from record_logits
  std::vector<std::pair<Value, std::function<void(Tensor)>>> constants;  // and how to fill them
};

class Model {
 public:
  virtual ~Model() = default;
  virtual ParameterSet& parameters() = 0;
  const ParameterSet& parameters() const { return const_cast<Model*>(this)->parameters(); }
  virtual Recording record_loss(const nn::Rows& rows, DType real, bool training) const = 0;
  virtual Recording record_logits(const nn::Rows& rows, DType real) const = 0;
  // First id of this rank's part of the vocabulary; logits column j is id vocab_begin() + j, columns past vocab_size are padding.
  virtual std::int64_t vocab_begin() const = 0;
};

}  // namespace tfm
