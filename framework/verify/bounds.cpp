#include "verify/bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "verify/as_run.h"

namespace tfm::verify {
namespace {

constexpr double kUnit = 0x1p-23;     // of fp32
constexpr double kSumUnit = 0x1p-20;  // of fp32 sums over ranks and micro-batches, relative
constexpr double kLeastPart = 1e-6;   // of the gradient's norm
// Of the gradient's norm: what rounding leaves where the exact gradient is zero but its terms are
// not, as of queries that attend to one key.
constexpr double kResidue = 0x1p-30;

}  // namespace

Deviation of_gradient(const PartNorms& n, double norm) {
  const double share = static_cast<double>(n.elements) / static_cast<double>(n.whole_elements);
  // Of parts whose exact gradient is zero (a key's bias), relative to the whole gradient.
  const double size = std::max({std::sqrt(n.reference), kLeastPart * norm, 1e-300});
  const double plain = std::sqrt(std::max(n.plain, n.whole_plain * share));
  // A norm over few elements varies by about this much from one rounding to another.
  const double few = 1 + 2 / std::sqrt(std::max(1.0, static_cast<double>(n.elements)));
  return {std::sqrt(n.run) / size,
          (kGradientFactor * few * plain + std::sqrt(n.kinks) + kResidue * norm) / size + kSumUnit};
}

void UpdateCheck::add(optim::FirstUpdate u, double after) {
  const double w = rule_.after(u);
  error_ += (after - w) * (after - w);
  // Of the weight, of a step that is made of a dozen roundings, and of its gradient, of which
  // Adam's step is a steep function near zero.
  u.rounding = 4 * kUnit;
  double steep = rule_.after(u);
  u.rounding = -4 * kUnit;
  steep -= rule_.after(u);
  const double step = 12 * kUnit * (std::abs(w - u.weight) + u.lr);
  bound_ += std::pow(kUnit * std::abs(w) + step + std::abs(steep), 2);
}

Deviation UpdateCheck::deviation(double norm_of_weights) const {
  const double size = std::max(norm_of_weights, 1e-300);
  return {std::sqrt(error_) / size, std::sqrt(bound_) / size};
}

Finding worst_part(const std::string& check, const comm::Mesh& mesh,
                   const std::vector<nn::PartSlice>& parts, const std::vector<std::size_t>& place,
                   const std::vector<Deviation>& deviations) {
  const std::size_t n = parts.size(), world = static_cast<std::size_t>(mesh.layout.world());
  std::vector<double> mine(2 * n), all(2 * n * world);
  for (std::size_t i = 0; i < place.size(); ++i) {
    const auto [error, bound] = deviations[i];
    mine[2 * place[i]] = std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
    mine[2 * place[i] + 1] = bound;
  }
  mesh.world().all_gather({mine.data(), DType::f64, {std::ssize(mine)}},
                          {all.data(), DType::f64, {std::ssize(all)}});
  const auto ratio = [&](std::size_t r, std::size_t i) {
    const double e = all[(r * n + i) * 2], b = all[(r * n + i) * 2 + 1];
    return e == 0 ? 0 : b == 0 ? std::numeric_limits<double>::infinity() : e / b;
  };
  std::size_t rank = 0, part = 0;
  for (std::size_t r = 0; r < world; ++r)
    for (std::size_t i = 0; i < n; ++i)
      if (ratio(r, i) > ratio(rank, part)) rank = r, part = i;
  Finding f{check, parts[part].name, all[(rank * n + part) * 2], all[(rank * n + part) * 2 + 1]};
  for (std::size_t r = 0; r < world; ++r)
    if (ratio(r, part) > 1) f.ranks.push_back(static_cast<int>(r));
  return f;
}

}  // namespace tfm::verify
