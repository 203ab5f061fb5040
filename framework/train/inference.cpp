#include "train/inference.h"

#include <algorithm>

namespace tfm {
namespace {

std::int64_t leaf_bytes(const Recording& r) {
  MemoryPlan plan;
  for (const ValueInfo& v : r.tape->values())
    if (v.role == Role::input || v.role == Role::constant) plan.add("leaves", v.bytes());
  return plan.total();
}

}  // namespace

Inference::Inference(const Model& model, const Mesh& mesh, void* flat, const BatchShape& shape, std::int64_t vocab_size, int threads,
                     DType real)
    : mesh_(mesh), stream_{threads}, recording_(model.record_logits(shape, real)),
      program_(plan(recording_.tape, {.training = false, .outputs = {recording_.logits}})),
      arena_(program_.arena_bytes() + leaf_bytes(recording_)), vocab_size_(vocab_size) {
  Bindings b;
  b.data.resize(recording_.tape->values().size());
  b.gradients.resize(b.data.size());
  for (std::size_t v = 0; v < b.data.size(); ++v) {
    const ValueInfo& info = recording_.tape->values()[v];
    if (info.role == Role::parameter)
      b.data[v] = model.parameters().view(info.parameter, flat, real);
    else if (info.role != Role::activation)
      b.data[v] = {arena_.take("leaves", info.bytes()), info.dtype, info.shape};
  }
  program_.bind(arena_.take("activations", program_.arena_bytes()), b);
  for (const auto& [value, fill] : recording_.constants) fill(b.data[value.id]);
}

void Inference::run(const Fields& fields) {
  for (const auto& [name, value] : recording_.inputs) {
    const Tensor in = program_.value(value);
    std::int32_t* to = in.ptr<std::int32_t>();
    const auto found = fields.find(name);
    if (found == fields.end()) {
      std::fill_n(to, in.elements(), 0);
      continue;
    }
    TFM_CHECK(static_cast<std::int64_t>(found->second.size()) == in.elements(), name + " does not fill the recorded shape");
    std::copy(found->second.begin(), found->second.end(), to);
  }
  program_.run({&stream_, &mesh_, {}});
}

std::vector<double> Inference::row(std::int64_t index) const {
  const Tensor logits = program_.value(recording_.logits);
  const std::int64_t width = logits.shape[1];
  std::vector<double> mine(static_cast<std::size_t>(width)), all(static_cast<std::size_t>(width * mesh_.layout.tensor));
  with_float(logits.dtype, [&]<class T>() {
    const T* p = logits.ptr<T>() + index * width;
    std::copy(p, p + width, mine.begin());
  });
  mesh_.tensor->all_gather({mine.data(), DType::f64, {width}}, {all.data(), DType::f64, {width * mesh_.layout.tensor}});
  all.resize(static_cast<std::size_t>(vocab_size_));
  return all;
}

}  // namespace tfm
