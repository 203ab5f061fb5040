#include "models/summary.h"

#include <algorithm>

#include "models/layer_parts.h"

namespace tfm::models {
namespace {

std::string dense_name(const config::ModelConfig& m, const config::HeadConfig& head) {
  const auto first = std::ranges::find_if(m.heads, [](const config::HeadConfig& h) {
    return h.labelled() && h.pooler != config::Pooler::none &&
           h.pooler != config::Pooler::automatic;
  });
  return first->name == head.name ? "pooler" : head.name + ".pooler";
}

}  // namespace

HeadLayer::HeadLayer(const HeadSpec& s) {
  const config::Pooler kind = s.head.pooler;
  if (kind == config::Pooler::none || kind == config::Pooler::automatic) return;
  const std::string name = dense_name(s.model, s.head);
  const bool transforms = kind == config::Pooler::transform;
  activation_ = kind == config::Pooler::tanh   ? kernels::Activation::tanh
                : kind == config::Pooler::relu ? kernels::Activation::relu
                                               : activation_of(s.model.activation);
  dense_.emplace(s.context, std::vector<nn::PartSpec>{{name, s.model.d_model}}, s.model.d_model,
                 nn::Linear::Options{.bias = s.model.bias || !transforms,
                                     .std = s.context.init_std,
                                     .partial = true,
                                     .hidden = false});
  if (!transforms) return;
  nn::Norm::Options norm = norm_of(s.model);
  norm.partial = true;
  norm_.emplace(s.context, name + ".norm", s.model.d_model, norm);
}

graph::Value HeadLayer::operator()(graph::Recorder& r, graph::Value x) const {
  if (!dense_) return x;
  const graph::Value y = ops::activation(r, (*dense_)(r, x), activation_, false);
  return norm_ ? (*norm_)(r, y) : y;
}

Summary::Summary(const HeadSpec& s) : context_(s.context), head_(s.head), layer_(s) {}

graph::Value Summary::operator()(nn::Recording& rec, graph::Value x) const {
  graph::Recorder& r = *rec.tape;
  using enum kernels::Pool;
  const kernels::Pool kind = head_.pool == config::Pool::mean   ? mean
                             : head_.pool == config::Pool::last ? last
                                                                : first;
  const graph::Value mask = kind == first ? graph::Value{} : rec.input(Field::mask);
  return layer_(r, ops::pool(r, nn::enter_tp_region(r, context_, x), kind, rec.shape.rows(), mask));
}

}  // namespace tfm::models
