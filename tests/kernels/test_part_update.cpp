// Updates that look at whole parts, against plain loops.
#include "kernels/factored_moments.h"
#include "kernels/muon.h"
#include "support/kernel_case.h"

namespace tfm::test {
namespace {

template <class T>
class PartUpdate : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(PartUpdate, Types);

const StepNumbers kStep{.update = {0.01, 0.3, 0.2, 0.9}};
const StepOutcome kOutcome{.norm = 60, .gradient_factor = 0.5, .applied = 1};

double norm(const Values& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum);
}

// One part of `rows` rows and `cols` columns, and what becomes of it in float64.
template <class T>
struct OnePart {
  OnePart(std::int64_t r, std::int64_t c, bool decays)
      : rows(r), cols(c), range{n, 5, r, c, 0, decays, gp, gg, gm, gv, ga} {}
  std::int64_t rows, cols, n = rows * cols;
  Values p = random_values(n, 1), g = random_values(n, 2), m = random_values(n, 3, 0.1),
         v = Values(n, 0.25), a = random_values(n, 4);
  Guarded<T> gp{p}, gg{g}, gm{m}, gv{v}, ga{a};
  kernels::PartSquares sums;
  kernels::PartElements<T> range;
  cpu::Stream s{2};

  template <class Rule>
  void descend(const Rule& rule) {
    kernels::add_squares(s, kernels::PartSquaresArgs<T, T>{{&range, 1}, &kOutcome, &sums});
    kernels::descend(s,
                     kernels::DescendArgs<Rule, T, T>{{&range, 1}, rule, &kStep, &kOutcome, &sums});
  }
  void expect_descended(double shrink, double step) {
    for (std::int64_t i = 0; i < n; ++i) {
      p[i] = shrink * p[i] - step * g[i];
      a[i] += 0.1 * (p[i] - a[i]);
    }
    expect_close(gg.values(), g, tolerance<T>(10), "direction");
    expect_close(gp.values(), p, tolerance<T>(2), "param");
    expect_close(ga.values(), a, tolerance<T>(2), "average");
  }
};

TYPED_TEST(PartUpdate, LambFollowsItsEquations) {
  for (const bool decays : {true, false})
    for (const std::int64_t rows : {1, 37, 2000}) {
      OnePart<TypeParam> x(rows, 10, decays);
      kernels::adam_direction(x.s, kernels::AdamDirectionArgs<TypeParam, TypeParam>{
                                       {&x.range, 1}, {0.9, 0.95, 1e-8, 0.1}, &kStep, &kOutcome});
      for (std::int64_t i = 0; i < x.n; ++i) {
        const double g = 0.5 * x.g[i];
        x.m[i] = 0.9 * x.m[i] + 0.1 * g;
        x.v[i] = 0.95 * x.v[i] + 0.05 * g * g;
        x.g[i] = x.m[i] / 0.3 / (std::sqrt(x.v[i] / 0.2) + 1e-8) + (decays ? 0.1 * x.p[i] : 0);
      }
      x.descend(kernels::TrustRatio{});
      x.expect_descended(1, 0.01 * (decays ? norm(x.p) / norm(x.g) : 1));
      expect_close(x.gm.values(), x.m, tolerance<TypeParam>(), "m");
      expect_close(x.gv.values(), x.v, tolerance<TypeParam>(), "v");
    }
}

TYPED_TEST(PartUpdate, WithoutANormTheTrustRatioIsOne) {
  OnePart<TypeParam> x(3, 5, true);
  x.p.assign(x.p.size(), 0);
  std::fill_n(x.gp.data(), x.n, TypeParam{0});
  x.descend(kernels::TrustRatio{});
  x.expect_descended(1, 0.01);
}

TYPED_TEST(PartUpdate, AdafactorFollowsItsEquations) {
  using T = TypeParam;
  for (const auto& [rows, cols] : {std::pair{1, 1}, {7, 130}, {300, 70}}) {
    OnePart<T> x(rows, cols, true);
    std::vector<std::int64_t> whole(rows + cols);
    Values means(rows + cols, 0.25);
    Guarded<T> gmeans(means);
    double mean = 0;
    const kernels::MatrixElements<T> matrix{
        x.n, 0, x.cols, x.gg, whole.data(), whole.data() + rows, gmeans, gmeans + rows, &mean};
    const kernels::MatrixMeans<T> all{0, x.rows, x.cols, whole.data(), gmeans, &mean};
    kernels::add_row_column_squares(
        x.s, kernels::RowColumnSquaresArgs<T>{{&matrix, 1}, &kStep, &kOutcome});
    std::vector<std::int64_t> cut(rows + cols);  // within a row
    kernels::MatrixElements<T> parts[] = {matrix, matrix};
    parts[0].n = parts[1].first = x.n / 3, parts[1].n -= x.n / 3, parts[1].grad += x.n / 3;
    for (auto& part : parts) part.row_sums = cut.data(), part.column_sums = cut.data() + rows;
    kernels::add_row_column_squares(x.s,
                                    kernels::RowColumnSquaresArgs<T>{parts, &kStep, &kOutcome});
    EXPECT_EQ(cut, whole);
    kernels::update_means(x.s, kernels::UpdateMeansArgs<T>{{&all, 1}, 1e-6, &kStep, &kOutcome});
    kernels::divide_by_means(x.s, kernels::DivideByMeansArgs<T>{{&matrix, 1}, 1e-6, &kOutcome});
    Values squares(rows + cols);
    for (std::int64_t i = 0; i < x.n; ++i) {
      x.g[i] *= 0.5;
      squares[i / cols] += x.g[i] * x.g[i] / cols;
      squares[rows + i % cols] += x.g[i] * x.g[i] / rows;
    }
    double expected_mean = 0;
    for (std::int64_t i = 0; i < rows + cols; ++i) {
      means[i] += 0.3 * (squares[i] - means[i]);
      if (i < rows) expected_mean += means[i] / rows;
    }
    for (std::int64_t i = 0; i < x.n; ++i)
      x.g[i] /= std::sqrt(means[i / cols] * means[rows + i % cols] / expected_mean);
    expect_close(gmeans.values(), means, tolerance<T>(), "means");
    x.descend(kernels::ClippedRms{1e-3, 0.8, 0.1});
    const double root = std::sqrt(static_cast<double>(x.n));
    x.expect_descended(1 - 0.01 * 0.1,
                       0.01 * norm(x.p) / root / std::max(1.0, norm(x.g) / root / 0.8));
  }
}

TYPED_TEST(PartUpdate, VectorsOfAdafactorKeepEachSquare) {
  OnePart<TypeParam> x(133, 1, false);
  std::copy_n(x.gv.data(), x.n, x.gm.data());
  kernels::divide_by_root(
      x.s, kernels::DivideByRootArgs<TypeParam, TypeParam>{{&x.range, 1}, 0.4, &kStep, &kOutcome});
  for (std::int64_t i = 0; i < x.n; ++i) {
    const double g = 0.5 * x.g[i];
    x.v[i] += 0.3 * (g * g - x.v[i]);
    x.g[i] = g / std::sqrt(std::max(x.v[i], 0.4 * 0.4));
  }
  expect_close(x.gm.values(), x.v, tolerance<TypeParam>(), "squares");
  expect_close(x.gg.values(), x.g, tolerance<TypeParam>(2), "direction");
}

TYPED_TEST(PartUpdate, MuonFollowsItsEquations) {
  for (const bool nesterov : {true, false}) {
    OnePart<TypeParam> x(12, 3, true);
    kernels::momentum(
        x.s, kernels::MomentumArgs<TypeParam, TypeParam>{{&x.range, 1}, 0.8, nesterov, &kOutcome});
    for (std::int64_t i = 0; i < x.n; ++i) {
      const double g = 0.5 * x.g[i];
      x.m[i] = 0.8 * x.m[i] + 0.2 * g;
      x.g[i] = nesterov ? 0.2 * g + 0.8 * x.m[i] : x.m[i];
    }
    expect_close(x.gm.values(), x.m, tolerance<TypeParam>(), "m");
    x.descend(kernels::MatrixRate{3, 0.1, !nesterov});
    x.expect_descended(1 - 0.03 * 0.1, 0.03 * (nesterov ? 2 : 0.2 * std::sqrt(12.0)));
  }
}

TYPED_TEST(PartUpdate, NormalizedValuesHaveNormOne) {
  for (const std::int64_t n : {1, 37, 20000}) {
    Guarded<TypeParam> x(random_values(n, 1, 5)), zero(Values(n, 0));
    cpu::Stream s{2};
    kernels::normalize(s, kernels::NormalizeArgs<TypeParam>{n, 1e-7, x});
    kernels::normalize(s, kernels::NormalizeArgs<TypeParam>{n, 1e-7, zero});
    EXPECT_NEAR(norm(x.values()), 1, tolerance<TypeParam>(10));
    EXPECT_EQ(norm(zero.values()), 0);
  }
}

TYPED_TEST(PartUpdate, SkippedStepsChangeNothing) {
  using T = TypeParam;
  OnePart<T> x(12, 3, true);
  const StepOutcome skipped{.gradient_factor = std::numeric_limits<double>::quiet_NaN()};
  const std::span<const kernels::PartElements<T>> range(&x.range, 1);
  kernels::adam_direction(x.s, kernels::AdamDirectionArgs<T, T>{range, {}, &kStep, &skipped});
  kernels::divide_by_root(x.s, kernels::DivideByRootArgs<T, T>{range, 0, &kStep, &skipped});
  kernels::momentum(x.s, kernels::MomentumArgs<T, T>{range, 0.9, true, &skipped});
  kernels::add_squares(x.s, kernels::PartSquaresArgs<T, T>{range, &skipped, &x.sums});
  kernels::descend(
      x.s, kernels::DescendArgs<kernels::MatrixRate, T, T>{range, {}, &kStep, &skipped, &x.sums});
  EXPECT_EQ(x.sums.weights.plain, 0);
  const OnePart<T> before(12, 3, true);
  for (const auto& buffer :
       {&OnePart<T>::gp, &OnePart<T>::gg, &OnePart<T>::gm, &OnePart<T>::gv, &OnePart<T>::ga}) {
    Guarded<T> same = before.*buffer;
    EXPECT_EQ((x.*buffer).values(), same.values());
  }
}

}  // namespace
}  // namespace tfm::test
