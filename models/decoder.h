#pragma once
// Decoder-only transformers: GPT-2, Llama, ALiBi decoders, and any combination of their options.
#include "models/transformer.h"

namespace tfm::models {

class Decoder final : public Transformer {
 public:
  Decoder(const config::Config& config, const comm::Mesh& mesh);
  nn::Recording record_decode(const nn::BatchShape& shape, DType dtype) const override;

 private:
  graph::Value hidden(nn::Recording& rec, Relay& relay, bool training) const override;

  std::optional<Vocabulary> tokens_;
  std::optional<Embeddings> embeddings_;
  std::optional<Stack> stack_;
};

}  // namespace tfm::models
