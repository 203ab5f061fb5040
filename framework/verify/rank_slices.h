#pragma once
// What one rank has of each part of a model, as numbers of the host.
#include <functional>

#include "train/engine.h"
#include "verify/bounds.h"

namespace tfm::verify {

using Parts = std::vector<std::vector<double>>;  // in the order of a set of parameters' slices()

// This rank's slices of what a run has: the weights with which it computes, those that the
// optimizer updates, the gradients. Of the latter two what this rank does not own is zero.
Parts parameters_of(train::Engine& engine);
Parts weights_of(train::Engine& engine);
Parts gradients_of(train::Engine& engine);

double square_sum(const double* x, std::int64_t n);

// The slices of a run on this rank, beside the parts of the whole model.
class RankSlices {
 public:
  // `whole`: of the model on one rank; it and the mesh must outlive this.
  RankSlices(const train::Engine& engine, const nn::ParameterSet& whole, const comm::Mesh& mesh);

  std::size_t size() const { return slices_.size(); }
  const nn::PartSlice& operator[](std::size_t i) const { return slices_[i]; }
  // Index of a slice's part among those of the whole model.
  std::size_t part(std::size_t i) const { return parts_[i]; }
  // The elements of a slice whose sums and state are this rank's own.
  std::int64_t own_elements(std::size_t i) const;
  double own_squares(std::size_t i, const std::vector<double>& slice) const;
  template <class F>
  void each_own(std::size_t i, F&& f) const {
    for (const auto& [begin, end] : own_[i])
      for (auto k = static_cast<std::size_t>(begin); k < static_cast<std::size_t>(end); ++k) f(k);
  }
  // The slice's elements of its whole part.
  std::vector<double> sliced(std::size_t i, const double* part) const;
  // Collective: each part as the first of its copies has it, on every rank.
  Parts whole(const nn::ParameterSet& parameters, const Parts& mine) const;
  // Collective: see worst_part(). `deviations`: of each slice.
  Finding worst(const std::string& check, const std::vector<Deviation>& deviations) const;

 private:
  const nn::ParameterSet& whole_;
  const comm::Mesh& mesh_;
  std::vector<nn::PartSlice> slices_;
  std::vector<std::size_t> parts_;
  std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> own_;  // ranges of each slice
};

}  // namespace tfm::verify
