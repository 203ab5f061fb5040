#pragma once
// Decoder-only transformers: GPT-2, Llama, ALiBi decoders and what lies between them, as the configuration's options compose.
#include "models/parts.h"

namespace tfm {

class Decoder final : public Model {
 public:
  Decoder(const Config& config, const Mesh& mesh);
  ParameterSet& parameters() override { return parameters_; }
  Recording record_loss(const BatchShape& shape, DType real, bool training) const override;
  Recording record_logits(const BatchShape& shape, DType real) const override;
  Recording record_step(const BatchShape& shape, DType real) const override;
  Recording record_memory(const BatchShape&, DType) const override { internal_error("a decoder reads no source"); }

 private:
  Value hidden(Recording& rec, bool training) const;

  Config config_;
  ParameterSet parameters_;
  nn::Context context_;
  std::optional<Vocabulary> tokens_;
  std::optional<Embeddings> embeddings_;
  std::optional<Stack> stack_;
  std::optional<Head> head_;
};

}  // namespace tfm
