#include "train/evaluation.h"

#include <algorithm>

namespace tfm {
namespace {

constexpr std::int64_t kTokens = 1024;  // of a rank at a time: their logits are kept

// What a rank computes of the batches of one shape.
class Part {
 public:
  Part(const LoadedModel& model, BatchShape shape, int threads)
      : shape_(shape),
        inference_(*model.model, model.mesh, const_cast<float*>(model.flat.data()), shape, model.config.model.vocab_size, threads) {
    for (const auto& [name, value] : inference_.recording().inputs) memory_[name].resize(elements(value));
    memory_["labels"].resize(static_cast<std::size_t>(shape.rows().tokens()));
  }
  std::int64_t sequences() const { return shape_.sequences; }

  // Sequences [first, first + count) of a batch; count may be 0.
  Inference::Score run(const Batcher& data, std::int64_t batch, std::int64_t first, std::int64_t count) {
    Fields real, all;
    for (auto& [name, values] : memory_) {
      const bool counted = name.ends_with("labels") || name.ends_with("mask");
      const std::size_t used = values.size() / static_cast<std::size_t>(shape_.sequences) * static_cast<std::size_t>(count);
      all[name] = values;
      real[name] = all[name].first(used);
      std::ranges::fill(real[name], 0);
      std::ranges::fill(all[name].subspan(used), counted ? -1 : 0);
    }
    if (count > 0) data.fill(batch, first, count, real);
    inference_.run(all);
    return inference_.score(memory_["labels"]);
  }

 private:
  std::size_t elements(Value v) const { return static_cast<std::size_t>(inference_.recording().tape->info(v).shape.elements()); }

  BatchShape shape_;
  Inference inference_;
  std::map<std::string, std::vector<std::int32_t>> memory_;
};

}  // namespace

Inference::Score evaluate(const LoadedModel& model, const Config& config, const Batcher& data, int threads) {
  const std::vector<BatchShape> shapes = batch_shapes(config);
  const std::int64_t ranks = model.mesh.layout.data;
  std::map<std::size_t, Part> parts;
  Inference::Score total;
  for (std::int64_t i = 0; i < data.batches(); ++i) {
    const Batcher::Batch batch = data.batch(i);
    BatchShape shape = shapes[batch.shape];
    shape.sequences = std::clamp<std::int64_t>(kTokens / shape.length, 1, ceil_div(shape.sequences, ranks));
    Part& part = parts.try_emplace(batch.shape, model, shape, threads).first->second;
    for (std::int64_t first = 0; first < batch.sequences; first += part.sequences() * ranks) {
      const std::int64_t mine = first + part.sequences() * model.mesh.data_rank;
      const Inference::Score s = part.run(data, i, mine, std::clamp<std::int64_t>(batch.sequences - mine, 0, part.sequences()));
      total.loss += s.loss, total.labels += s.labels, total.correct += s.correct;
    }
  }
  std::int64_t counts[2] = {total.labels, total.correct};
  model.mesh.data->all_reduce({&total.loss, DType::f64, {1}});
  model.mesh.data->all_reduce({counts, DType::i64, {2}});
  return {total.loss, counts[0], counts[1]};
}

}  // namespace tfm
