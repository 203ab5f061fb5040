#pragma once
// Encoder-only transformers: BERT (Devlin et al. 2019) and its relatives.
#include "models/transformer.h"

namespace tfm::models {

class Encoder final : public Transformer {
 public:
  Encoder(const config::Config& config, const comm::Mesh& mesh);

 private:
  graph::Value hidden(nn::Recording& rec, Relay& relay, bool training) const override;

  std::optional<Vocabulary> tokens_;
  std::optional<Embeddings> embeddings_;
  std::optional<Stack> stack_;
};

}  // namespace tfm::models
