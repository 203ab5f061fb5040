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

// Labels >= 0 of the first `sequences` sequences of each loss's labels.
Totals count_labels(const nn::Recording& recording, const BatchFields& fields,
                    std::int64_t sequences);

}  // namespace tfm::inference
