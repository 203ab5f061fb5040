#pragma once
// Sums of losses over labels, and the metrics derived from them.
#include <array>

#include "comm/mesh.h"
#include "nn/model.h"

namespace tfm::inference {

struct Totals {  // by term of the loss
  std::array<double, kMostObjectives> loss{};
  std::array<std::int64_t, kMostObjectives> labels{}, correct{};  // correct: evaluation only
  std::array<double, kMostObjectives> weights{};
  double mean() const;  // the whole loss: the weighted sum of the terms' means
  double mean(std::size_t term) const;
  double accuracy(std::size_t term = 0) const;
  double perplexity() const;  // of the first term
  Totals& operator+=(const Totals& other);
  // Sums over the ranks along `axes`, and the collectives that this takes.
  void all_reduce(const comm::Mesh& mesh, comm::AxisSet axes);
  static std::vector<comm::CollectiveCall> collectives(comm::AxisSet axes);
};

// Counts, for each loss, the labels in `sequences` sequences from `first` on.
Totals count_labels(const nn::Recording& recording, const BatchFields& fields,
                    std::int64_t sequences, std::int64_t first = 0);
// StepState::packed_rows for passes with at most so many labels.
std::array<std::int64_t, kMostObjectives> packed_rows(
    const nn::Recording& recording, const std::array<std::int64_t, kMostObjectives>& labels);

}  // namespace tfm::inference
