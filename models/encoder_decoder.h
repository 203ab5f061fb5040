#pragma once
// Encoder-decoder transformers: the original one (Vaswani et al. 2017), T5 (Raffel et al. 2020),
// BART (Lewis et al. 2020).
#include "models/parts.h"

namespace tfm::models {

class EncoderDecoder final : public nn::Model {
 public:
  EncoderDecoder(const config::Config& config, const comm::Mesh& mesh);
  nn::ParameterSet& parameters() override { return parameters_; }
  nn::Recording record_loss(const nn::BatchShape& shape, DType dtype, bool training) const override;
  nn::Recording record_logits(const nn::BatchShape& shape, DType dtype) const override;
  nn::Recording record_decode(const nn::BatchShape& shape, DType dtype) const override;
  nn::Recording record_encoder(const nn::BatchShape& shape, DType dtype) const override;

 private:
  const Vocabulary& target_tokens() const { return target_ ? *target_ : *source_; }
  // Up to the decoder's first stage.
  EncoderOutput read_source(nn::Recording& rec, Relay& relay, bool training) const;
  graph::Value hidden(nn::Recording& rec, Relay& relay, bool training) const;

  config::Config config_;
  nn::ParameterSet parameters_;
  nn::Context context_;
  Stages stages_;
  std::optional<Vocabulary> source_, target_;  // target_: where it is not shared with the source
  std::optional<Embeddings> source_embeddings_, target_embeddings_;
  std::optional<Stack> encoder_, decoder_;
  std::optional<Head> head_;
};

}  // namespace tfm::models
