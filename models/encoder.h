#pragma once
// Encoder-only transformers that predict masked tokens: BERT (Devlin et al. 2019) and its
// relatives. With `next_sentence`, a second objective on the first token: tanh of a dense layer,
// then two classes.
#include "models/transformer.h"

namespace tfm::models {

class Encoder final : public Transformer {
 public:
  Encoder(const config::Config& config, const comm::Mesh& mesh);
  nn::Recording record_loss(const nn::BatchShape& shape, DType dtype, bool training) const override;

 private:
  graph::Value hidden(nn::Recording& rec, Relay& relay, bool training) const override;
  void record_sentence_loss(nn::Recording& rec, graph::Value x, graph::Value labels,
                            bool training) const;

  std::optional<Vocabulary> tokens_;
  std::optional<Embeddings> embeddings_;
  std::optional<Stack> stack_;
  std::optional<nn::Linear> pooler_;
  std::optional<Vocabulary> classes_;
  int classes_bias_ = -1;
};

}  // namespace tfm::models
