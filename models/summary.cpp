#include "models/summary.h"

#include <algorithm>

namespace tfm::models {
namespace {

std::string dense_name(const config::ModelConfig& m, const config::HeadConfig& head) {
  const auto first = std::ranges::find_if(m.heads, [](const config::HeadConfig& h) {
    return h.summarizes() && h.pooler != config::Pooler::none;
  });
  return first->name == head.name ? "pooler" : head.name + ".pooler";
}

}  // namespace

Summary::Summary(const HeadSpec& s) : context_(s.context), head_(s.head) {
  if (head_.pooler == config::Pooler::none) return;
  dense_.emplace(s.context,
                 std::vector<nn::PartSpec>{{dense_name(s.model, s.head), s.model.d_model}},
                 s.model.d_model,
                 nn::Linear::Options{.std = s.context.init_std, .partial = true, .hidden = false});
}

graph::Value Summary::operator()(nn::Recording& rec, graph::Value x) const {
  graph::Recorder& r = *rec.tape;
  using enum kernels::Pool;
  const kernels::Pool kind = head_.pool == config::Pool::mean   ? mean
                             : head_.pool == config::Pool::last ? last
                                                                : first;
  const graph::Value mask = kind == first ? graph::Value{} : rec.input(Field::mask);
  const graph::Value pooled =
      ops::pool(r, nn::enter_tp_region(r, context_, x), kind, rec.shape.rows(), mask);
  if (!dense_) return pooled;
  return ops::activation(
      r, (*dense_)(r, pooled),
      head_.pooler == config::Pooler::tanh ? kernels::Activation::tanh : kernels::Activation::relu,
      false);
}

}  // namespace tfm::models
