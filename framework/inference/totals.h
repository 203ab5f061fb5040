#pragma once
// Sums of losses over labels, and what follows from them.
#include <array>

#include "nn/model.h"

namespace tfm::inference {

struct Totals {  // by objective
  std::array<double, kMostObjectives> loss{};
  std::array<std::int64_t, kMostObjectives> labels{}, correct{};  // correct: evaluation only
  double mean() const;                                            // sum of the objectives' means
  double perplexity() const, accuracy() const;                    // of the first objective
  Totals& operator+=(const Totals& other);
  void all_reduce(comm::Communicator& over);
  static std::array<std::int64_t, 3> reduced_bytes();  // of the sums of all_reduce(), in order
};

// Labels >= 0 of the first `sequences` sequences of each loss's labels.
Totals count_labels(const nn::Recording& recording, const BatchFields& fields,
                    std::int64_t sequences);

}  // namespace tfm::inference
