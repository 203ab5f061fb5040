#pragma once
// Encoder-only transformers that predict masked tokens: BERT (Devlin et al. 2019) and its
// relatives. With `next_sentence`, a second objective on the first token: tanh of a dense layer,
// then two classes.
#include "models/parts.h"

namespace tfm::models {

class Encoder final : public nn::Model {
 public:
  Encoder(const config::Config& config, const comm::Mesh& mesh);
  nn::ParameterSet& parameters() override { return parameters_; }
  nn::Recording record_loss(const nn::BatchShape& shape, DType dtype, bool training) const override;
  nn::Recording record_logits(const nn::BatchShape& shape, DType dtype) const override;
  nn::Recording record_decode(const nn::BatchShape&, DType) const override {
    internal_error("an encoder cannot generate text");
  }
  nn::Recording record_encoder(const nn::BatchShape&, DType) const override {
    internal_error("an encoder cannot generate text");
  }

 private:
  graph::Value hidden(nn::Recording& rec, Relay& relay, bool training) const;
  void record_sentence_loss(nn::Recording& rec, graph::Value x, graph::Value labels,
                            bool training) const;

  config::Config config_;
  nn::ParameterSet parameters_;
  nn::Context context_;
  Stages stages_;
  std::optional<Vocabulary> tokens_;
  std::optional<Embeddings> embeddings_;
  std::optional<Stack> stack_;
  std::optional<Head> head_;
  std::optional<nn::Linear> pooler_;
  std::optional<Vocabulary> classes_;
  int classes_bias_ = -1;
};

}  // namespace tfm::models
