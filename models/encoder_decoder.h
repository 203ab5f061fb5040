#pragma once
// Encoder-decoder transformers: the original one (Vaswani et al. 2017), T5 (Raffel et al. 2020), BART (Lewis et al. 2020).
#include "models/parts.h"

namespace tfm {

class EncoderDecoder final : public Model {
 public:
  EncoderDecoder(const Config& config, const Mesh& mesh);
  ParameterSet& parameters() override { return parameters_; }
  Recording record_loss(const BatchShape& shape, DType real, bool training) const override;
  Recording record_logits(const BatchShape& shape, DType real) const override;
  Recording record_step(const BatchShape& shape, DType real) const override;
  Recording record_memory(const BatchShape& shape, DType real) const override;

 private:
  const Vocabulary& target_tokens() const { return target_ ? *target_ : *source_; }
  Memory read_source(Recording& rec, bool training) const;
  Value hidden(Recording& rec, bool training) const;

  Config config_;
  ParameterSet parameters_;
  nn::Context context_;
  std::optional<Vocabulary> source_, target_;  // target_: where it is not shared with the source
  std::optional<Embeddings> source_embeddings_, target_embeddings_;
  std::optional<Stack> encoder_, decoder_;
  std::optional<Head> head_;
};

}  // namespace tfm
