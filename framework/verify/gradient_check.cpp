#include "verify/gradient_check.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace tfm::verify {
namespace {

constexpr double kGrids[] = {1, 1.1892, 1.6818};  // ReferenceStep::Grid::scale
constexpr double kKinks = 2;  // rounding units: how near to 0 an input of relu may have either sign

}  // namespace

GradientCheck::GradientCheck(ReferenceStep& reference, const RankSlices& slices, std::int64_t step,
                             double loss_scale)
    : reference_(reference), slices_(slices), scale_(loss_scale), norms_(slices.size()) {
  loss = reference.compute(step, scale_, {});
  exact_.assign(reference.gradients(),
                reference.gradients() + reference.parameters().flat_elements());
  norm = norm_of(exact_.data());
  for (const double grid : kGrids) {
    const double rounded = reference.compute(step, scale_, ReferenceStep::Grid{grid});
    plain_loss = std::max(plain_loss, std::abs(rounded - loss));
    plain_norm = std::max(plain_norm, std::abs(norm_of(reference.gradients()) - norm));
    for (std::size_t i = 0; i < slices.size(); ++i) {
      const auto [whole, mine] = difference(i);
      norms_[i].whole_plain = std::max(norms_[i].whole_plain, whole / scale_ / scale_);
      norms_[i].plain = std::max(norms_[i].plain, mine / scale_ / scale_);
    }
  }
  if (!reference.has_kinks()) return;
  reference.compute(step, scale_, {}, kKinks * rounding_unit(reference.precision()));
  plain_norm += std::abs(norm_of(reference.gradients()) - norm);
  for (std::size_t i = 0; i < slices.size(); ++i)
    norms_[i].kinks = difference(i).second / scale_ / scale_;
}

double GradientCheck::norm_of(const double* gradients) const {
  double sum = 0;
  for (const nn::PartSlice& p : reference_.parameters().slices())
    if (!reference_.parameters().spec(p.parameter).evens_load)
      sum += square_sum(gradients + p.offset, p.elements());
  return std::sqrt(sum) / scale_;
}

std::int64_t GradientCheck::offset_of(std::size_t i) const {
  return reference_.parameters().slices()[slices_.part(i)].offset;
}

std::pair<double, double> GradientCheck::difference(std::size_t i) const {
  const std::int64_t at = offset_of(i);
  std::vector<double> d(static_cast<std::size_t>(slices_[i].full.elements()));
  std::transform(reference_.gradients() + at, reference_.gradients() + at + std::ssize(d),
                 exact_.begin() + at, d.begin(), std::minus<>());
  return {square_sum(d.data(), std::ssize(d)), slices_.own_squares(i, slices_.sliced(i, d.data()))};
}

Deviation GradientCheck::of(std::size_t i, const std::vector<double>& run) const {
  std::vector<double> mine = slices_.sliced(i, exact_.data() + offset_of(i));
  PartNorms n = norms_[i];
  n.reference = slices_.own_squares(i, mine) / scale_ / scale_;
  for (std::size_t k = 0; k < mine.size(); ++k) mine[k] = run[k] - mine[k] / scale_;
  n.run = slices_.own_squares(i, mine);
  n.elements = slices_.own_elements(i), n.whole_elements = slices_[i].full.elements();
  return of_gradient(n, norm);
}

}  // namespace tfm::verify
