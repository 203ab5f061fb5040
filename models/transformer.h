#pragma once
// The base of the model families: parameters, pipeline stages and output layer, and the recordings
// that differ in nothing but the hidden states.
#include "models/parts.h"
#include "models/stack.h"

namespace tfm::models {

class Transformer : public nn::Model {
 public:
  Transformer(const Transformer&) = delete;  // context_ refers to parameters_
  Transformer& operator=(const Transformer&) = delete;
  const nn::ParameterSet& parameters() const override { return parameters_; }
  nn::Recording record_loss(const nn::BatchShape& shape, DType dtype, bool training) const override;
  nn::Recording record_logits(const nn::BatchShape& shape, DType dtype) const override;
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

  config::Config config_;
  nn::ParameterSet parameters_;
  nn::Context context_;
  Stages stages_;
  std::optional<Head> head_;
};

}  // namespace tfm::models
