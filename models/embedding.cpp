// A vector for a sequence: its summary, perhaps of length 1, trained to be nearer to that of its
// document than to those of others (Reimers and Gurevych 2019).
#include <algorithm>
#include <cmath>

#include "models/summary.h"
#include "ops/losses.h"

namespace tfm::models {
namespace {

class Embedding final : public Head {
 public:
  explicit Embedding(const HeadSpec& s)
      : context_(s.context),
        head_(s.head),
        width_(s.model.d_model),
        batch_axes_(s.batch_axes),
        batch_ranks_(s.batch_ranks),
        summary_(s) {}

  // Tensor ranks compute the same loss; the first one has the gradient.
  void record_loss(nn::Recording& rec, graph::Value x, bool training) const override {
    const graph::Value labels = rec.input(Field::positives, static_cast<bool>(x));
    if (!x) return rec.loss_elsewhere(head_.name, head_.weight, Field::positives);
    TFM_CHECK(rec.losses.size() < kMostObjectives, "a model has too many losses");
    const std::int64_t texts = rec.shape.texts, own = rec.shape.sequences / texts,
                       group = texts == 1 ? 0 : head_.group;
    const bool shared = group == 0 || group == own * batch_ranks_;
    const graph::Value made = vectors(rec, x, 1);
    const graph::Recorder::Named scope(*rec.tape, head_.name, comm::Purpose::head);
    const graph::Value loss = ops::contrastive(
        *rec.tape, made, labels,
        {.texts = texts,
         .group = shared ? 0 : group,
         .scale = head_.normalize ? head_.scale / static_cast<double>(width_) : head_.scale,
         .axes = batch_axes_,
         .ranks = shared ? batch_ranks_ : 1,
         .objective = static_cast<int>(rec.losses.size()),
         .makes_gradient = context_.shard == 0,
         .accuracy = !training});
    rec.losses.push_back({.name = head_.name,
                          .weight = head_.weight,
                          .value = loss,
                          .labels = Field::positives,
                          .correct = training ? graph::Value{} : graph::Value{loss.id + 1}});
  }

  graph::Value logits(nn::Recording& rec, graph::Value x) const override {
    return vectors(rec, x, 1 / std::sqrt(static_cast<double>(width_)));
  }

 private:
  // A norm makes their mean square 1, of which the factor makes the length.
  graph::Value vectors(nn::Recording& rec, graph::Value x, double factor) const {
    graph::Recorder& r = *rec.tape;
    const graph::Recorder::Named scope(r, head_.name, comm::Purpose::head);
    const graph::Value pooled = summary_(rec, x);
    if (!head_.normalize) return pooled;
    const graph::Value gain =
        r.constant(head_.name + ".factor", {width_}, r.dtype(), [factor](Tensor to) {
          with_float(to.dtype, [&]<class T>() {
            std::fill_n(to.ptr<T>(), to.elements(), T(static_cast<Accum<T>>(factor)));
          });
        });
    constexpr double kLeast = 1e-24;  // of a mean square
    return ops::norm(r, pooled, {.eps = kLeast, .rms = true}, gain);
  }

  nn::Context context_;
  config::HeadConfig head_;
  std::int64_t width_;
  comm::AxisSet batch_axes_;
  int batch_ranks_;
  Summary summary_;
};

}  // namespace

std::unique_ptr<Head> make_embedding(const HeadSpec& spec) {
  return std::make_unique<Embedding>(spec);
}

}  // namespace tfm::models
