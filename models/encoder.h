#pragma once
// Encoder-only transformers that predict masked tokens: BERT (Devlin et al. 2019) and its relatives. With `next_sentence`, a
// second objective on the first token: tanh of a dense layer, then two classes.
#include "models/parts.h"

namespace tfm {

class Encoder final : public Model {
 public:
  Encoder(const Config& config, const Mesh& mesh);
  ParameterSet& parameters() override { return parameters_; }
  Recording record_loss(const BatchShape& shape, DType real, bool training) const override;
  Recording record_logits(const BatchShape& shape, DType real) const override;
  Recording record_step(const BatchShape&, DType) const override { internal_error("an encoder generates no text"); }
  Recording record_memory(const BatchShape&, DType) const override { internal_error("an encoder generates no text"); }

 private:
  Value hidden(Recording& rec, bool training) const;
  void record_sentence_loss(Recording& rec, Value x, const nn::Rows& rows, bool training) const;

  Config config_;
  ParameterSet parameters_;
  nn::Context context_;
  std::optional<Vocabulary> tokens_;
  std::optional<Embeddings> embeddings_;
  std::optional<Stack> stack_;
  std::optional<Head> head_;
  std::optional<nn::Linear> pooler_;
  std::optional<Vocabulary> classes_;
  int classes_bias_ = -1;
};

}  // namespace tfm
