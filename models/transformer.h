#pragma once
// The base of the model families: parameters, pipeline stages and heads, and the recordings
// that differ in nothing but the hidden states.
#include "models/head.h"
#include "models/stack.h"

namespace tfm::models {

class Transformer : public nn::Model {
 public:
  Transformer(const Transformer&) = delete;  // context_ refers to parameters_
  Transformer& operator=(const Transformer&) = delete;
  const nn::ParameterSet& parameters() const override { return parameters_; }
  nn::Recording record_loss(const nn::BatchShape& shape, DType dtype, bool training) const override;
  nn::Recording record_logits(const nn::BatchShape& shape, DType dtype,
                              std::string_view head) const override;
  nn::Recording record_decode(const nn::BatchShape&, DType) const override {
    internal_error("an encoder cannot generate text");
  }
  nn::Recording record_encoder(const nn::BatchShape&, DType) const override {
    internal_error("this model has no source");
  }

 protected:
  Transformer(const config::Config& config, const comm::Mesh& mesh);
  // What the output layer reads; absent unless this rank's stage has that layer.
  virtual graph::Value hidden(nn::Recording& rec, Relay& relay, bool training) const = 0;

  // Makes the heads, whose parameters come last. `tied`: the embedding that may be the output
  // layer, too.
  void add_heads(const Vocabulary& tied);
  // Logits of the token of each position. Error(usage) if no head predicts tokens.
  graph::Value token_logits(nn::Recording& rec, graph::Value x) const;

  void begin_router_terms(nn::Recording& rec) const;
  void add_router_terms(nn::Recording& rec) const;

  config::Config config_;
  nn::ParameterSet parameters_;
  nn::Context context_;
  Stages stages_;
  // The axes of the ranks that have other tokens, empty if there are none; whether this one is the
  // first of them.
  comm::AxisSet token_axes_;
  bool first_of_tokens_;
  comm::AxisSet batch_axes_;  // of the ranks that have other sequences
  int batch_ranks_;
  std::vector<std::unique_ptr<Head>> heads_;
  const Head* lm_ = nullptr;  // of these
};

}  // namespace tfm::models
