#include "inference/evaluation.h"

#include <algorithm>

#include "data/batch_shapes.h"

namespace tfm::inference {
namespace {

constexpr std::int64_t kTokens = 1024;  // of a rank at a time

// What a rank computes of the batches of one shape.
class Part {
 public:
  Part(LoadedModel& model, const nn::BatchShape& shape)
      : site_(model.site),
        sequences_(shape.sequences),
        forward_(forward_loss(*model.model, shape)),
        arena_(site_.device.allocate(forward_.bytes()), forward_.bytes()) {
    forward_.bind(site_.device.stream(), model.weights(), arena_);
    const nn::Recording& r = forward_.recording();
    for (const auto& [name, value] : r.inputs)
      memory_[name].resize(static_cast<std::size_t>(r.width(value) * sequences_));
  }
  std::int64_t sequences() const { return sequences_; }

  // Sequences [first, first + count) of a batch; count may be 0.
  Totals run(const data::Batcher& data, std::int64_t batch, std::int64_t first,
             std::int64_t count) {
    Fields real, all;
    for (auto& [name, values] : memory_) {
      const bool counted = name.ends_with("labels") || name.ends_with("mask");
      const std::size_t used =
          values.size() / static_cast<std::size_t>(sequences_) * static_cast<std::size_t>(count);
      all[name] = values;
      real[name] = all[name].first(used);
      std::ranges::fill(real[name], 0);
      std::ranges::fill(all[name].subspan(used), counted ? -1 : 0);
    }
    if (count > 0) data.fill(batch, first, count, real);
    forward_.run({site_.device.stream(), &site_.tensors, {}}, all);
    Totals totals;
    totals.add(forward_.recording(), all, [&](graph::Value v) {
      return device::download_value(site_.device.stream(), forward_.output(v).ptr<double>());
    });
    return totals;
  }

 private:
  static Forward forward_loss(const nn::Model& model, const nn::BatchShape& shape) {
    nn::Recording r = model.record_loss(shape, DType::f32, false);
    const std::vector<graph::Value> outputs = r.outputs();
    return {std::move(r), outputs};
  }

  comm::Site site_;
  std::int64_t sequences_;
  Forward forward_;
  device::Arena arena_;
  std::map<std::string, std::vector<std::int32_t>> memory_;
};

}  // namespace

Totals evaluate(LoadedModel& model, const config::Config& config, const data::Batcher& data) {
  const std::vector<nn::BatchShape> shapes = data::batch_shapes(config);
  const std::int64_t ranks = model.site.mesh.layout.data;
  std::map<std::size_t, Part> parts;
  Totals total;
  for (std::int64_t i = 0; i < data.batches(); ++i) {
    const data::Batcher::Batch batch = data.batch(i);
    nn::BatchShape shape = shapes[batch.shape];
    shape.sequences =
        std::clamp<std::int64_t>(kTokens / shape.length, 1, ceil_div(shape.sequences, ranks));
    Part& part = parts.try_emplace(batch.shape, model, shape).first->second;
    for (std::int64_t first = 0; first < batch.sequences; first += part.sequences() * ranks) {
      const std::int64_t mine = first + part.sequences() * model.site.mesh.data_rank;
      total += part.run(data, i, mine,
                        std::clamp<std::int64_t>(batch.sequences - mine, 0, part.sequences()));
    }
  }
  total.all_reduce(*model.site.mesh.data);
  return total;
}

}  // namespace tfm::inference
