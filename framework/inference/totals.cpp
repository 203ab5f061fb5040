#include "inference/totals.h"

#include <algorithm>
#include <cmath>

#include "comm/calls.h"
#include "kernels/packed_rows.h"

namespace tfm::inference {

Totals count_labels(const nn::Recording& recording, const BatchFields& fields,
                    std::int64_t sequences, std::int64_t first) {
  Totals t;
  for (std::size_t k = 0; k < recording.losses.size(); ++k) {
    t.weights[k] = recording.losses[k].weight;
    if (!recording.losses[k].value) continue;
    t.labels[k] = recording.losses[k].per_sequence * sequences + recording.losses[k].per_batch;
    if (!recording.losses[k].labels) continue;
    const Field field = *recording.losses[k].labels;
    const auto width = static_cast<std::size_t>(recording.shape.own_width(field));
    for (std::int32_t label : fields.at(field).subspan(static_cast<std::size_t>(first) * width,
                                                       static_cast<std::size_t>(sequences) * width))
      t.labels[k] += info_of(field).counts(label);
  }
  return t;
}

std::array<std::int64_t, kMostObjectives> packed_rows(
    const nn::Recording& recording, const std::array<std::int64_t, kMostObjectives>& labels) {
  std::array<std::int64_t, kMostObjectives> rows{};
  for (std::size_t k = 0; k < recording.losses.size(); ++k)
    if (const std::optional<Field> field = recording.losses[k].labels)
      rows[k] = kernels::packed_rows(recording.shape.sequences * recording.shape.own_width(*field),
                                     labels[k]);
  return rows;
}

double Totals::mean() const {
  double sum = 0;
  for (std::size_t k = 0; k < loss.size(); ++k)
    if (labels[k] > 0) sum += weights[k] * mean(k);
  return sum;
}

double Totals::mean(std::size_t term) const {
  return loss[term] / static_cast<double>(std::max<std::int64_t>(labels[term], 1));
}

double Totals::perplexity() const { return std::exp(mean(0)); }

double Totals::accuracy(std::size_t term) const {
  return static_cast<double>(correct[term]) /
         static_cast<double>(std::max<std::int64_t>(labels[term], 1));
}

Totals& Totals::operator+=(const Totals& other) {
  weights = other.weights;
  for (std::size_t k = 0; k < loss.size(); ++k)
    loss[k] += other.loss[k], labels[k] += other.labels[k], correct[k] += other.correct[k];
  return *this;
}

void Totals::all_reduce(const comm::Mesh& mesh, comm::AxisSet axes) {
  constexpr auto n = static_cast<std::int64_t>(kMostObjectives);
  const std::vector<comm::CollectiveCall> list = collectives(axes);
  comm::Calls calls(mesh, list);
  calls.next({loss.data(), DType::f64, {n}});
  calls.next({labels.data(), DType::i64, {n}});
  calls.next({correct.data(), DType::i64, {n}});
  calls.finish();
}

std::vector<comm::CollectiveCall> Totals::collectives(comm::AxisSet axes) {
  std::vector<comm::CollectiveCall> all;
  for (const std::size_t bytes : {sizeof(loss), sizeof(labels), sizeof(correct)})
    all.push_back({comm::Collective::all_reduce_sum, axes, static_cast<std::int64_t>(bytes),
                   comm::Purpose::totals});
  return all;
}

}  // namespace tfm::inference
