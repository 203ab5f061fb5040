#include "inference/totals.h"

#include <algorithm>
#include <cmath>

namespace tfm::inference {

Totals count_labels(const nn::Recording& recording, const BatchFields& fields,
                    std::int64_t sequences) {
  Totals t;
  for (std::size_t k = 0; k < recording.losses.size(); ++k) {
    if (!recording.losses[k].value) continue;
    const Field field = recording.losses[k].labels;
    const auto n = static_cast<std::size_t>(sequences * recording.shape.own_width(field));
    for (std::int32_t label : fields.at(field).first(n)) t.labels[k] += label >= 0;
  }
  return t;
}

double Totals::mean() const {
  double sum = 0;
  for (std::size_t k = 0; k < loss.size(); ++k)
    if (labels[k] > 0) sum += loss[k] / static_cast<double>(labels[k]);
  return sum;
}

double Totals::perplexity() const {
  return std::exp(loss[0] / static_cast<double>(std::max<std::int64_t>(labels[0], 1)));
}

double Totals::accuracy() const {
  return static_cast<double>(correct[0]) / static_cast<double>(labels[0]);
}

Totals& Totals::operator+=(const Totals& other) {
  for (std::size_t k = 0; k < loss.size(); ++k)
    loss[k] += other.loss[k], labels[k] += other.labels[k], correct[k] += other.correct[k];
  return *this;
}

void Totals::all_reduce(comm::Communicator& over) {
  constexpr auto n = static_cast<std::int64_t>(kMostObjectives);
  over.all_reduce({loss.data(), DType::f64, {n}});
  over.all_reduce({labels.data(), DType::i64, {n}});
  over.all_reduce({correct.data(), DType::i64, {n}});
}

std::array<std::int64_t, 3> Totals::reduced_bytes() {
  return {sizeof(loss), sizeof(labels), sizeof(correct)};
}

}  // namespace tfm::inference
