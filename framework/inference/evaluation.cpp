#include "inference/evaluation.h"

#include <algorithm>

#include "core/task.h"
#include "data/batch_shapes.h"
#include "data/loader.h"

namespace tfm::inference {
namespace {

// Sequences of a rank per forward pass.
std::int64_t sequences_of_pass(const config::Config& config, const nn::BatchShape& shape,
                               std::int64_t ranks) {
  constexpr std::int64_t kTokens = 1024;
  const std::int64_t whole = ceil_div(shape.sequences, ranks),
                     few = std::clamp<std::int64_t>(kTokens / shape.length, 1, whole);
  const config::HeadConfig* head = config.model.head_of_type("embed");
  if (!head) return few;
  // Texts that are compared are together.
  const std::int64_t together = shape.texts * std::max<std::int64_t>(head->group, 1);
  const bool all = head->group == 0 || together == shape.sequences;
  if (whole * ranks != shape.sequences || whole % (all ? shape.texts : together) != 0)
    throw Error(ExitCode::usage, "the pairs of a batch, train.global_batch_size " +
                                     std::to_string(shape.sequences) + " / " +
                                     std::to_string(shape.texts) + " texts, are compared by all " +
                                     std::to_string(ranks) +
                                     " ranks that share it; expected a number that divides them");
  return all ? whole : together * std::max<std::int64_t>(1, few / together);
}

// The forward pass for batches of one shape; its memory is allocated at its first use.
class Evaluator {
 public:
  Evaluator(LoadedModel& model, const config::Config& config, nn::BatchShape shape)
      : model_(model) {
    shape.sequences =
        sequences_of_pass(config, shape, model.rank_context.mesh.layout.size(nn::kBatchAxes));
    forward_ = ForwardPass::loss(*model.model, shape, DType::f32, {});
  }
  data::DataLoader::RankShape part() const {
    return data::DataLoader::rank_shape(forward_.recording(), forward_.recording().shape.sequences);
  }
  Totals totals(const Batch& batch) {
    comm::RankContext& rank_context = model_.rank_context;
    if (!arena_) {
      arena_.emplace(rank_context.device.allocate(forward_.bytes()), forward_.bytes());
      forward_.bind(rank_context.device.stream(), model_.weights(), *arena_);
    }
    return forward_.totals({rank_context.device.stream(), &rank_context.tensors, {}}, batch.fields);
  }

 private:
  LoadedModel& model_;
  ForwardPass forward_;
  std::optional<device::Arena> arena_;
};

}  // namespace

Totals evaluate(LoadedModel& model, const config::Config& config, const data::Dataset& data) {
  const comm::Mesh& mesh = model.rank_context.mesh;
  std::vector<Evaluator> by_shape;
  std::vector<data::DataLoader::RankShape> parts;
  for (const nn::BatchShape& shape : data::batch_shapes(config))
    parts.push_back(by_shape.emplace_back(model, config, shape).part());
  data::DataLoader loader(data, std::move(parts), data::LoaderOptions::of(mesh, data.batches()));
  Totals total;
  Task task("evaluating", data.batches());
  for (std::int64_t i = 0; i < data.batches(); ++i) {
    for (std::int64_t round = 0; round < loader.rounds(i); ++round) {
      const Batch& batch = loader.load(i, round);
      total += by_shape[batch.shape].totals(batch);
    }
    task.add(1);
    mesh.group(nn::kBatchAxes).barrier();  // no rank waits longer for another than for a batch
  }
  total.all_reduce(mesh, nn::kBatchAxes);
  return total;
}

}  // namespace tfm::inference
