#pragma once
// Decoder-only transformers: GPT-2, Llama, ALiBi decoders and any combination of these options.
#include "models/parts.h"

namespace tfm::models {

class Decoder final : public nn::Model {
 public:
  Decoder(const config::Config& config, const comm::Mesh& mesh);
  nn::ParameterSet& parameters() override { return parameters_; }
  nn::Recording record_loss(const nn::BatchShape& shape, DType dtype, bool training) const override;
  nn::Recording record_logits(const nn::BatchShape& shape, DType dtype) const override;
  nn::Recording record_decode(const nn::BatchShape& shape, DType dtype) const override;
  nn::Recording record_encoder(const nn::BatchShape&, DType) const override {
    internal_error("a decoder has no source");
  }

 private:
  graph::Value hidden(nn::Recording& rec, Relay& relay, bool training) const;

  config::Config config_;
  nn::ParameterSet parameters_;
  nn::Context context_;
  Stages stages_;
  std::optional<Vocabulary> tokens_;
  std::optional<Embeddings> embeddings_;
  std::optional<Stack> stack_;
  std::optional<Head> head_;
};

}  // namespace tfm::models
