#pragma once
// Decoder-only transformers: GPT-2, Llama, ALiBi decoders and what lies between them, as the configuration's options compose.
#include "nn/model.h"
#include "train/config.h"

namespace tfm {

class Decoder final : public Model {
 public:
  Decoder(const Config& config, const Mesh& mesh);
  ParameterSet& parameters() override { return parameters_; }
  Recording record_loss(const nn::Rows& rows, DType real, bool training) const override;
  Recording record_logits(const nn::Rows& rows, DType real) const override;
  std::int64_t vocab_begin() const override;

 private:
  struct Block {
    nn::Norm attention_norm, ffn_norm;
    nn::SelfAttention attention;
    nn::FeedForward ffn;
  };
  std::int64_t vocab_end() const;
  Value hidden(Recording& rec, const nn::Rows& rows, DType real, bool training) const;  // ready for the head
  Value embed(Recording& rec, const nn::Rows& rows, bool training) const;
  Value block(Recorder& r, const Block& b, Value x, const nn::Rows& rows, bool training) const;
  Block make_block(int layer);

  Config config_;
  ParameterSet parameters_;
  nn::Context context_;
  int embedding_ = -1, position_ = -1, head_ = -1, head_bias_ = -1;
  std::vector<Block> blocks_;        // as trained: with dropout
  std::vector<nn::Norm> final_norm_; // one, or none for post-norm
};

}  // namespace tfm
