#pragma once
// Encoder-decoder transformers: the original one (Vaswani et al. 2017), T5 (Raffel et al. 2020) and
// BART (Lewis et al. 2020).
#include "models/transformer.h"

namespace tfm::models {

class EncoderDecoder final : public Transformer {
 public:
  EncoderDecoder(const config::Config& config, const comm::Mesh& mesh);
  nn::Recording record_decode(const nn::BatchShape& shape, DType dtype) const override;
  nn::Recording record_encoder(const nn::BatchShape& shape, DType dtype) const override;

 private:
  const Vocabulary& target_tokens() const { return target_ ? *target_ : *source_; }
  // Records the encoder, and passes its output on to the decoder's first stage.
  EncoderOutput read_source(nn::Recording& rec, Relay& relay, bool training) const;
  graph::Value hidden(nn::Recording& rec, Relay& relay, bool training) const override;

  std::optional<Vocabulary> source_, target_;  // target_: absent if shared with the source
  std::optional<Embeddings> source_embeddings_, target_embeddings_;
  std::optional<Stack> encoder_, decoder_;
};

}  // namespace tfm::models
