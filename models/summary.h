#pragma once
// What stands for a sequence: a hidden state or their mean, and perhaps a dense layer behind it, as
// BERT's pooler (Devlin et al. 2019), also with a norm, as ModernBERT's (Warner et al. 2024), which
// it has for each token, too.
#include <optional>

#include "models/head.h"

namespace tfm::models {

// The dense layer of a head, its activation and perhaps a norm; none where the head has no pooler.
// Inside the tensor-parallel region.
class HeadLayer {
 public:
  // It is called `pooler`; of a second head that has one, NAME.pooler.
  explicit HeadLayer(const HeadSpec& spec);
  graph::Value operator()(graph::Recorder& r, graph::Value x) const;

 private:
  kernels::Activation activation_{};
  std::optional<nn::Linear> dense_;
  std::optional<nn::Norm> norm_;
};

class Summary {
 public:
  explicit Summary(const HeadSpec& spec);
  // (B, C) inside the tensor-parallel region, where each rank has a term of the gradient; from x as
  // of Head::record_loss(). Under context parallelism, the rank that has the first positions has
  // it; only that one has labels of sequences.
  graph::Value operator()(nn::Recording& rec, graph::Value x) const;

 private:
  nn::Context context_;
  config::HeadConfig head_;
  HeadLayer layer_;
};

}  // namespace tfm::models
