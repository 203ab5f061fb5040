// The token of each position: the next one of a decoder, a masked one of an encoder (BERT's has a
// dense layer, the activation and a norm before the output layer).
#include <algorithm>
#include <cmath>
#include <optional>

#include "models/head.h"
#include "models/layer_parts.h"

namespace tfm::models {
namespace {

class LmHead final : public Head {
 public:
  explicit LmHead(const HeadSpec& s)
      : context_(s.context), model_(s.model), head_(s.head), loss_(s.loss), tied_(s.tied) {
    const config::ModelConfig& m = s.model;
    nn::Context& c = s.context;
    if (m.head_transform) {
      transform_.emplace(c, std::vector<nn::PartSpec>{{"head.transform", m.d_model}}, m.d_model,
                         nn::Linear::Options{.bias = m.bias, .std = c.init_std, .hidden = false});
      norm_.emplace(c, "head.transform_norm", m.d_model, norm_of(m));
    }
    if (!tied_) own_.emplace(c, "head.weight", m.vocab_size, m.d_model, c.init_std);
    if (m.has_head_bias())
      bias_ = c.parameters.add({.parts = {{"head.bias", m.vocab_size}},
                                .placement = nn::placed(nn::Placement::shard_rows, nn::kModelAxes),
                                .trained = m.head_bias != config::HeadBias::frozen});
  }

  void record_loss(nn::Recording& rec, graph::Value x, bool training) const override {
    const graph::Value labels = rec.input(Field::labels, static_cast<bool>(x));
    if (!x) return rec.loss_elsewhere(head_.name, head_.weight, Field::labels);
    graph::Recorder& r = *rec.tape;
    const graph::Recorder::Named scope(r, "head", comm::Purpose::head);
    const Vocabulary& v = vocabulary();
    const auto size = static_cast<double>(v.size());
    const double smoothing = loss_.smoothing_denominator == config::SmoothingDenominator::others
                                 ? loss_.label_smoothing * size / std::max(size - 1, 1.0)
                                 : loss_.label_smoothing;
    record_cross_entropy(rec, head_, ready(r, x), v.weight(r), bias(r), labels, Field::labels,
                         training,
                         {.vocab_size = v.size(),
                          .vocab_begin = v.begin(),
                          .vocab_end = v.end(),
                          .shards = context_.shards,
                          .smoothing = training ? smoothing : 0,
                          .scale = logit_scale(),
                          .softcap = model_.softcap,
                          .labelled = rec.shape.labelled});
  }

  graph::Value logits(nn::Recording& rec, graph::Value x) const override {
    graph::Recorder& r = *rec.tape;
    const graph::Recorder::Named scope(r, "head", comm::Purpose::head);
    const graph::Value all =
        ops::linear(r, ready(r, x), vocabulary().weight(r), bias(r), logit_scale());
    return model_.softcap > 0 ? ops::softcap(r, all, model_.softcap) : all;
  }

 private:
  const Vocabulary& vocabulary() const { return own_ ? *own_ : *tied_; }
  double logit_scale() const {
    return model_.scale_logits ? 1 / std::sqrt(static_cast<double>(model_.d_model)) : 1.0;
  }
  graph::Value bias(graph::Recorder& r) const {
    return bias_ < 0 ? graph::Value{} : context_.parameters.record(r, bias_);
  }
  // Applies the transform, if any, and enters the tensor-parallel region.
  graph::Value ready(graph::Recorder& r, graph::Value x) const {
    if (transform_)
      x = (*norm_)(
          r, ops::activation(r, (*transform_)(r, x), activation_of(model_.activation), false));
    return nn::enter_tp_region(r, context_, x);
  }

  nn::Context context_;
  config::ModelConfig model_;
  config::HeadConfig head_;
  config::LossConfig loss_;
  const Vocabulary* tied_;
  std::optional<Vocabulary> own_;
  std::optional<nn::Linear> transform_;
  std::optional<nn::Norm> norm_;
  int bias_ = -1;
};

}  // namespace

std::unique_ptr<Head> make_lm_head(const HeadSpec& spec) { return std::make_unique<LmHead>(spec); }

}  // namespace tfm::models
