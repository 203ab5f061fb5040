// Classes: one logit for each, of a summary of a sequence (BERT's next-sentence prediction is one),
// or of the hidden state of each token (Devlin et al. 2019, named entities).
#include <algorithm>
#include <optional>

#include "models/summary.h"

namespace tfm::models {
namespace {

class Classifier final : public Head {
 public:
  // Inside the tensor-parallel region: each tensor rank has a part of the classes, hence a term of
  // the gradient of all before them.
  explicit Classifier(const HeadSpec& s) : context_(s.context), head_(s.head) {
    nn::Context& c = s.context;
    head_.summarizes() ? void(summary_.emplace(s)) : void(layer_.emplace(s));
    classes_.emplace(c, head_.name + ".weight", head_.classes, s.model.d_model, c.init_std);
    bias_ = c.parameters.add({.parts = {{head_.name + ".bias", head_.classes}},
                              .placement = nn::placed(nn::Placement::shard_rows, nn::kModelAxes)});
  }

  void record_loss(nn::Recording& rec, graph::Value x, bool training) const override {
    const Field field = summary_ ? Field::sentence_labels : Field::token_labels;
    const graph::Value labels = rec.input(field, static_cast<bool>(x));
    if (!x) return rec.loss_elsewhere(head_.name, head_.weight, field);
    graph::Recorder& r = *rec.tape;
    const graph::Recorder::Named scope(r, head_.name, comm::Purpose::head);
    record_cross_entropy(rec, head_, rows(rec, x), classes_->weight(r),
                         context_.parameters.record(r, bias_), labels, field, training,
                         {.vocab_size = classes_->size(),
                          .vocab_begin = classes_->begin(),
                          .vocab_end = classes_->end(),
                          .shards = context_.shards,
                          .class_weights = training ? weights(r) : graph::Value{}});
  }

  graph::Value logits(nn::Recording& rec, graph::Value x) const override {
    graph::Recorder& r = *rec.tape;
    const graph::Recorder::Named scope(r, head_.name, comm::Purpose::head);
    return ops::linear(r, rows(rec, x), classes_->weight(r), context_.parameters.record(r, bias_));
  }

 private:
  graph::Value rows(nn::Recording& rec, graph::Value x) const {
    if (summary_) return (*summary_)(rec, x);
    return (*layer_)(*rec.tape, nn::enter_tp_region(*rec.tape, context_, x));
  }
  graph::Value weights(graph::Recorder& r) const {
    if (head_.class_weights.empty()) return {};
    return r.constant(
        head_.name + ".class_weights", {head_.classes}, DType::f64,
        [all = head_.class_weights](Tensor to) { std::ranges::copy(all, to.ptr<double>()); });
  }

  nn::Context context_;
  config::HeadConfig head_;
  std::optional<Summary> summary_;  // of a sequence
  std::optional<HeadLayer> layer_;  // of a token
  std::optional<Vocabulary> classes_;
  int bias_ = -1;
};

}  // namespace

std::unique_ptr<Head> make_classifier(const HeadSpec& spec) {
  return std::make_unique<Classifier>(spec);
}

}  // namespace tfm::models
