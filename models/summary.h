#pragma once
// What stands for a sequence: a hidden state or their mean, and perhaps a dense layer behind it, as
// BERT's pooler (Devlin et al. 2019).
#include <optional>

#include "models/head.h"

namespace tfm::models {

class Summary {
 public:
  // The dense layer is called `pooler`; of a second head that has one, NAME.pooler.
  explicit Summary(const HeadSpec& spec);
  // (B, C) inside the tensor-parallel region, where each rank has a term of the gradient; from x as
  // of Head::record_loss(). Under context parallelism, the rank that has the first positions has
  // it; only that one has labels of sequences.
  graph::Value operator()(nn::Recording& rec, graph::Value x) const;

 private:
  nn::Context context_;
  config::HeadConfig head_;
  std::optional<nn::Linear> dense_;
};

}  // namespace tfm::models
