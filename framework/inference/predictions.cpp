#include "inference/predictions.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "comm/consensus.h"
#include "core/task.h"
#include "data/batch_shapes.h"
#include "data/labelled_rows.h"
#include "data/loader.h"
#include "inference/label_scores.h"

namespace tfm::inference {
namespace {

// Of all data ranks, in the order of texts and positions.
std::vector<Prediction> gathered(const comm::Mesh& mesh, const std::vector<double>& mine,
                                 std::size_t classes) {
  std::vector<Prediction> all;
  const std::string bytes(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof mine[0]);
  std::vector<double> one(3 + classes);
  const std::size_t size = one.size() * sizeof one[0];
  for (const std::string& part : comm::gather(mesh.group(nn::kBatchAxes), bytes))
    for (std::size_t at = 0; at < part.size(); at += size) {
      std::memcpy(one.data(), part.data() + at, size);
      all.push_back({static_cast<std::int64_t>(one[0]),
                     static_cast<std::int64_t>(one[1]),
                     static_cast<std::int32_t>(one[2]),
                     {one.begin() + 3, one.end()}});
    }
  std::ranges::sort(all, {}, [](const Prediction& p) { return std::pair{p.text, p.position}; });
  return all;
}

}  // namespace

std::int32_t Prediction::best() const {
  return static_cast<std::int32_t>(std::ranges::max_element(scores) - scores.begin());
}

double Prediction::probability(std::int32_t of) const {
  double sum = 0;
  for (const double s : scores) sum += std::exp(s - scores[static_cast<std::size_t>(of)]);
  return 1 / sum;
}

std::vector<Prediction> predictions(LoadedModel& model, const config::Config& config,
                                    const config::HeadConfig& head, const data::Dataset& data) {
  const comm::Mesh& mesh = model.rank_context.mesh;
  const nn::BatchShape shape = data::forward_shape(config, mesh.layout);
  const std::int64_t classes = head.type == "regress" ? 1 : head.classes;
  Inference inference(*model.model, model.rank_context, model.weights(), shape, classes, head.name);
  const FieldInfo& labels = info_of(data::label_field(head));
  const std::int64_t width = shape.width(labels.field);
  auto part = data::DataLoader::rank_shape(inference.recording(), shape.sequences);
  part.widths[labels.field] = width;
  data::DataLoader loader(data, {part}, data::LoaderOptions::of(mesh, data.batches()));
  std::vector<double> mine;
  Task task("predicting", data.batches());
  std::int64_t before = 0;  // texts of earlier batches
  for (std::int64_t i = 0; i < data.batches(); ++i) {
    for (std::int64_t round = 0; round < loader.rounds(i); ++round) {
      const Batch& batch = loader.load(i, round);
      const auto of = batch.fields.at(labels.field);
      inference.run(batch.fields);
      for (std::int64_t at = 0; at < batch.sequences * width; ++at) {
        const std::int32_t label = of[static_cast<std::size_t>(at)];
        if (!labels.counts(label)) continue;
        for (const std::int64_t x :
             {before + batch.first + at / width, at % width, static_cast<std::int64_t>(label)})
          mine.push_back(static_cast<double>(x));
        const std::vector<double> row = inference.row(at);  // collective over the tensor group
        mine.insert(mine.end(), row.begin(), row.end());
      }
    }
    before += data.batch(i).sequences;
    task.add(1);
    mesh.group(nn::kBatchAxes).barrier();  // no rank waits longer for another than for a batch
  }
  return gathered(mesh, mine, static_cast<std::size_t>(classes));
}

std::vector<std::pair<std::string, double>> scores_of(const config::HeadConfig& head,
                                                      const std::vector<Prediction>& all) {
  if (all.empty()) return {};
  if (head.type == "regress") {
    std::vector<double> truth, predicted;
    for (const Prediction& p : all) {
      truth.push_back(std::bit_cast<float>(p.label));
      predicted.push_back(p.scores[0]);
    }
    return {{"pearson", pearson(truth, predicted)}, {"spearman", spearman(truth, predicted)}};
  }
  std::vector<std::int32_t> truth, predicted;
  std::vector<std::size_t> begins;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i == 0 || all[i].text != all[i - 1].text) begins.push_back(i);
    truth.push_back(all[i].label);
    predicted.push_back(all[i].best());
  }
  std::vector<std::pair<std::string, double>> scores{{"accuracy", accuracy(truth, predicted)}};
  if (head.type == "tag" && names_entities(head.labels))
    scores.emplace_back("f1", f1_of_entities(truth, predicted, head.labels, begins));
  else
    scores.emplace_back(
        "f1", head.classes == 2 ? f1_of_class(truth, predicted) : f1_macro(truth, predicted));
  if (head.type == "classify") scores.emplace_back("mcc", matthews(truth, predicted));
  return scores;
}

}  // namespace tfm::inference
