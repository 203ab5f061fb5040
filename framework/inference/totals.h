#pragma once
// Sums of losses over labels, and what follows from them.
#include <array>

#include "comm/mesh.h"
#include "nn/model.h"

namespace tfm::inference {

struct Totals {  // by objective
  std::array<double, kMostObjectives> loss{};
  std::array<std::int64_t, kMostObjectives> labels{}, correct{};  // correct: evaluation only
  double mean() const;                                            // sum of the objectives' means
  double perplexity() const, accuracy() const;                    // of the first objective
  Totals& operator+=(const Totals& other);
  // Over the ranks along `axes`; what that exchanges.
  void all_reduce(const comm::Mesh& mesh, comm::AxisSet axes);
  static std::vector<comm::CollectiveCall> collectives(comm::AxisSet axes);
};

// Labels >= 0 in `sequences` sequences of each loss's labels, from `first` on.
Totals count_labels(const nn::Recording& recording, const BatchFields& fields,
                    std::int64_t sequences, std::int64_t first = 0);
// StepState::packed_rows of passes that have no more labels than these.
std::array<std::int64_t, kMostObjectives> packed_rows(
    const nn::Recording& recording, const std::array<std::int64_t, kMostObjectives>& labels);

}  // namespace tfm::inference
