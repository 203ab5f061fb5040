// A number for a sequence: a linear function of its summary, trained by the squared error.
#include "models/summary.h"
#include "ops/losses.h"

namespace tfm::models {
namespace {

class Regression final : public Head {
 public:
  // Tensor ranks compute the same numbers; the first one has the gradient.
  explicit Regression(const HeadSpec& s)
      : context_(s.context),
        head_(s.head),
        summary_(s),
        output_(s.context, {{head_.name, 1}}, s.model.d_model,
                {.std = s.context.init_std, .partial = true, .hidden = false}) {}

  void record_loss(nn::Recording& rec, graph::Value x, bool) const override {
    const graph::Value numbers = rec.input(Field::numbers, static_cast<bool>(x));
    if (!x) return rec.loss_elsewhere(head_.name, head_.weight, Field::numbers);
    TFM_CHECK(rec.losses.size() < kMostObjectives, "a model has too many losses");
    const graph::Value made = logits(rec, x);
    const graph::Recorder::Named scope(*rec.tape, head_.name, comm::Purpose::head);
    const ops::SquaredErrorOptions options{.objective = static_cast<int>(rec.losses.size()),
                                           .makes_gradient = context_.shard == 0};
    rec.losses.push_back({.name = head_.name,
                          .weight = head_.weight,
                          .value = ops::squared_error(*rec.tape, made, numbers, options),
                          .labels = Field::numbers});
  }

  graph::Value logits(nn::Recording& rec, graph::Value x) const override {
    graph::Recorder& r = *rec.tape;
    const graph::Recorder::Named scope(r, head_.name, comm::Purpose::head);
    return output_(r, summary_(rec, x));
  }

 private:
  nn::Context context_;
  config::HeadConfig head_;
  Summary summary_;
  nn::Linear output_;
};

}  // namespace

std::unique_ptr<Head> make_regression(const HeadSpec& spec) {
  return std::make_unique<Regression>(spec);
}

}  // namespace tfm::models
