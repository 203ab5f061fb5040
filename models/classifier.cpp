// The class of a sequence: a summary of its hidden states; for an encoder's first one a dense layer
// and tanh, as BERT's pooler (Devlin et al. 2019); then one logit for each class. BERT's
// next-sentence prediction is one.
#include <optional>

#include "models/head.h"

namespace tfm::models {
namespace {

class Classifier final : public Head {
 public:
  explicit Classifier(const HeadSpec& s) : context_(s.context), head_(s.head) {
    const config::ModelConfig& m = s.model;
    nn::Context& c = s.context;
    // Inside the tensor-parallel region: each tensor rank has a part of the classes, hence a term
    // of the gradient of all before them.
    if (m.family == config::Family::encoder && head_.pool == config::Pool::first)
      pooler_.emplace(c, std::vector<nn::PartSpec>{{"pooler", m.d_model}}, m.d_model,
                      nn::Linear::Options{.std = c.init_std, .partial = true, .hidden = false});
    classes_.emplace(c, head_.name + ".weight", head_.classes, m.d_model, c.init_std);
    bias_ = c.parameters.add({.parts = {{head_.name + ".bias", head_.classes}},
                              .placement = nn::placed(nn::Placement::shard_rows, nn::kModelAxes)});
  }

  void record_loss(nn::Recording& rec, graph::Value x, bool training) const override {
    const graph::Value labels = rec.input(kLabels, static_cast<bool>(x));
    if (!x) return rec.loss_elsewhere(head_.name, head_.weight, kLabels);
    graph::Recorder& r = *rec.tape;
    const graph::Recorder::Named scope(r, head_.name, comm::Purpose::head);
    record_cross_entropy(rec, head_, summary(rec, x), classes_->weight(r),
                         context_.parameters.record(r, bias_), labels, kLabels, training,
                         {.vocab_size = classes_->size(),
                          .vocab_begin = classes_->begin(),
                          .vocab_end = classes_->end(),
                          .shards = context_.shards});
  }

  graph::Value logits(nn::Recording& rec, graph::Value x) const override {
    graph::Recorder& r = *rec.tape;
    const graph::Recorder::Named scope(r, head_.name, comm::Purpose::head);
    return ops::linear(r, summary(rec, x), classes_->weight(r),
                       context_.parameters.record(r, bias_));
  }

 private:
  static constexpr Field kLabels = Field::sentence_labels;

  // (B, C), inside the tensor-parallel region.
  graph::Value summary(nn::Recording& rec, graph::Value x) const {
    graph::Recorder& r = *rec.tape;
    using enum kernels::Pool;
    const kernels::Pool kind = head_.pool == config::Pool::mean   ? mean
                               : head_.pool == config::Pool::last ? last
                                                                  : first;
    const graph::Value mask = kind == first ? graph::Value{} : rec.input(Field::mask);
    const graph::Value pooled =
        ops::pool(r, nn::enter_tp_region(r, context_, x), kind, rec.shape.rows(), mask);
    return pooler_ ? ops::activation(r, (*pooler_)(r, pooled), kernels::Activation::tanh, false)
                   : pooled;
  }

  nn::Context context_;
  config::HeadConfig head_;
  std::optional<nn::Linear> pooler_;
  std::optional<Vocabulary> classes_;
  int bias_ = -1;
};

}  // namespace

std::unique_ptr<Head> make_classifier(const HeadSpec& spec) {
  return std::make_unique<Classifier>(spec);
}

}  // namespace tfm::models
