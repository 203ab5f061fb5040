// Updates that look at whole parts, of LAMB, Adafactor and Muon, on the emulator.
#include "kernel_runs.h"
#include "kernels/factored_moments.h"
#include "kernels/muon.h"

namespace tfm::test {
namespace {

template <class T>
class DevicePartUpdate : public testing::Test {};
TYPED_TEST_SUITE(DevicePartUpdate, Wides);

const UpdateNumbers kNow{0.01, 0.3, 0.02, 0.99};

template <class D>
struct Step {
  explicit Step(bool applied) {
    *numbers = {.loss_scale = 4, .update = kNow};
    *outcome = {.norm = 30, .gradient_factor = 0.125, .applied = applied};
  }
  typename D::template Array<StepNumbers> numbers{"numbers", 1};
  typename D::template Array<StepOutcome> outcome{"outcome", 1};
};

// Parts that begin anywhere, every fifth one in two ranges, which meet at a block of 64 elements.
template <class D, class T, class P>
struct Parts {
  Parts(std::int64_t parts, std::int64_t elements)
      : n(parts), all(parts * (elements + 2 * parts)), sums("sums", parts) {
    g.assign(random_values(all, 2)), m.assign(random_values(all, 3, 0.1)),
        ema.assign(random_values(all, 5));
    Values square = random_values(all, 4);
    for (double& x : square) x *= x;
    v.assign(square);
    std::int64_t at = 0;
    for (int part = 0; part < static_cast<int>(parts); ++part) {
      sums[part] = {};
      const std::int64_t rows = 1 + part % 3, cols = (elements + 3 * part) / rows,
                         end = at + rows * cols,
                         cut = part % 5 == 0 ? std::min(end, round_up(at + 1, std::int64_t{64}))
                                             : end;
      add(part, at, cut, rows, cols);
      if (cut < end) add(part, cut, end, rows, cols);
      at = end;
    }
  }
  void add(int part, std::int64_t at, std::int64_t end, std::int64_t rows, std::int64_t cols) {
    const Weights<P> weights = p;
    ranges.push_back({end - at, at, rows, cols, part, part % 2 == 0, weights + at, g + at, m + at,
                      v + at, part % 3 == 0 ? nullptr : ema + at});
  }
  // Carried, so that equal sums have equal limbs.
  Values totals() {
    Values limbs;
    for (std::int64_t part = 0; part < n; ++part)
      for (const SquareSum& s : {sums[part].weights, sums[part].direction}) {
        double over = 0;
        for (const double limb : s.limb) {
          const double whole = limb + over;
          over = std::floor(whole * 0x1p-32);
          limbs.push_back(whole - over * 0x1p32);
        }
        limbs.push_back(s.too_large);
      }
    return limbs;
  }
  Results results(double size = 2) {
    const double bound = rounding<T>(size);
    const Values grad = g.values();
    double largest = 10;
    for (const double x : grad) largest = std::max(largest, std::abs(x));
    return {{"param", p.values(), bound},     {"grad", grad, largest * bound},
            {"m", m.values(), bound},         {"v", v.values(), bound},
            {"average", ema.values(), bound}, {"rounded", p.rounded(), rounding<P>(4)}};
  }

  std::int64_t n, all;
  template <class U>
  using Array = typename D::template Array<U>;
  WeightArray<D, P> p{"param", random_values(all, 1)};
  Array<T> g{"grad", all}, m{"m", all}, v{"v", all}, ema{"average", all};
  Array<kernels::PartSquares> sums;
  std::vector<kernels::PartElements<T, P>> ranges;
};

struct PartCase {
  std::int64_t parts, elements;
  bool applied = true;

  template <class D, class T, class P>
  Results lamb() const {
    Parts<D, T, P> a(parts, elements);
    Step<D> now(applied);
    auto& s = D::stream();
    kernels::adam_direction(
        s, kernels::AdamDirectionArgs<T, P>{a.ranges, {.decay = 0.1}, now.numbers, now.outcome});
    kernels::add_squares(s, kernels::PartSquaresArgs<T, P>{a.ranges, now.outcome, a.sums});
    kernels::descend(s, kernels::DescendArgs<kernels::TrustRatio, T, P>{
                            a.ranges, {}, now.numbers, now.outcome, a.sums});
    return a.results();
  }
  // Of weights and gradients as they are.
  template <class D, class P>
  Results squares() const {
    using T = Accum<P>;
    Parts<D, T, P> a(parts, elements);
    Step<D> now(applied);
    for (int twice = 0; twice < 2; ++twice)
      kernels::add_squares(D::stream(),
                           kernels::PartSquaresArgs<T, P>{a.ranges, now.outcome, a.sums});
    return {{"limbs", a.totals(), 0}};
  }
  template <class D, class T, class P>
  Results adafactor() const {
    Parts<D, T, P> a(parts, elements);
    Step<D> now(applied);
    auto& s = D::stream();
    kernels::divide_by_root(
        s, kernels::DivideByRootArgs<T, P>{a.ranges, 0.3, now.numbers, now.outcome});
    kernels::add_squares(s, kernels::PartSquaresArgs<T, P>{a.ranges, now.outcome, a.sums});
    kernels::descend(s, kernels::DescendArgs<kernels::ClippedRms, T, P>{
                            a.ranges, {0.5, 1, 0.1}, now.numbers, now.outcome, a.sums});
    return a.results();
  }
  template <class D, class T, class P>
  Results muon() const {
    Parts<D, T, P> a(parts, elements);
    Step<D> now(applied);
    auto& s = D::stream();
    for (const bool nesterov : {false, true})
      kernels::momentum(s, kernels::MomentumArgs<T, P>{a.ranges, 0.9, nesterov, now.outcome});
    for (const bool match_rms : {false, true})
      kernels::descend(s, kernels::DescendArgs<kernels::MatrixRate, T, P>{
                              a.ranges, {2, 0.1, match_rms}, now.numbers, now.outcome});
    return a.results();
  }
};
const PartCase kPartCases[]{{1, 1}, {36, 40}, {3, 5000}, {2, 300, false}};

TYPED_TEST(DevicePartUpdate, LambAsTheCpus) {
  for (const PartCase& c : kPartCases)
    expect_as_cpu([&]<class D>() { return c.lamb<D, TypeParam, TypeParam>(); });
}
TYPED_TEST(DevicePartUpdate, VectorsOfAdafactorAsTheCpus) {
  for (const PartCase& c : kPartCases)
    expect_as_cpu([&]<class D>() { return c.adafactor<D, TypeParam, TypeParam>(); });
}
TYPED_TEST(DevicePartUpdate, MatricesOfMuonAsTheCpus) {
  for (const PartCase& c : kPartCases)
    expect_as_cpu([&]<class D>() { return c.muon<D, TypeParam, TypeParam>(); });
}
TEST(DevicePartUpdateCases, DISABLED_AtRealShapes) {
  const PartCase c{4, 1 << 19};
  expect_as_cpu([&]<class D>() { return c.lamb<D, float, bf16>(); });
  expect_as_cpu([&]<class D>() { return c.adafactor<D, float, bf16>(); });
  expect_as_cpu([&]<class D>() { return c.muon<D, float, bf16>(); });
}
TEST(DevicePartUpdateCases, RoundWhatTheModelReads) {
  const PartCase c{5, 300};
  expect_as_cpu([&]<class D>() { return c.lamb<D, float, bf16>(); });
  expect_as_cpu([&]<class D>() { return c.adafactor<D, float, f16>(); });
  expect_as_cpu([&]<class D>() { return c.muon<D, float, bf16>(); });
}

template <class P>
class DevicePartSquares : public testing::Test {};
TYPED_TEST_SUITE(DevicePartSquares, Floats);
TYPED_TEST(DevicePartSquares, HaveTheCpusBits) {
  for (const PartCase& c : {PartCase{1, 1}, {34, 5}, {2, 9000}, {2, 300, false}})
    expect_as_cpu([&]<class D>() { return c.squares<D, TypeParam>(); });
}
TYPED_TEST(DevicePartSquares, NeedTheirBarriers) {
  expect_needs_barriers([&]<class D>() { return PartCase{2, 20000}.squares<D, TypeParam>(); });
}

// Shares of matrices of more columns, in ranges that share rows.
struct MatrixCase {
  std::int64_t matrices, rows, cols, first_column, width;
  bool applied = true;

  template <class D, class T>
  Results run() const {
    const std::int64_t n = rows * width, sums = matrices * (rows + cols);
    typename D::template Array<T> g("grad", matrices * n), means("means", sums);
    typename D::template Array<std::int64_t> whole("sums", sums);
    typename D::template Array<double> mean("mean", matrices);
    g.assign(random_values(matrices * n, 1)), means.assign(Values(sums, 0.25));
    std::vector<kernels::MatrixMeans<T>> all;
    std::vector<kernels::MatrixElements<T>> ranges;
    for (std::int64_t i = 0; i < sums; ++i) whole[i] = 0;
    for (int k = 0; k < static_cast<int>(matrices); ++k) {
      const std::int64_t at = k * (rows + cols), column = at + rows + first_column;
      mean[k] = 1;
      all.push_back({k, rows, cols, whole + at, means + at, mean + k});
      for (const auto& [begin, end] : {std::pair{std::int64_t{0}, n / 3}, {n / 3, n}})
        if (begin < end)
          ranges.push_back({end - begin, begin, width, g + (k * n + begin), whole + at,
                            whole + column, means + at, means + column, mean + k});
    }
    Step<D> now(applied);
    auto& s = D::stream();
    kernels::add_row_column_squares(
        s, kernels::RowColumnSquaresArgs<T>{ranges, now.numbers, now.outcome});
    kernels::update_means(s, kernels::UpdateMeansArgs<T>{all, 1e-3, now.numbers, now.outcome});
    kernels::divide_by_means(s, kernels::DivideByMeansArgs<T>{ranges, 1e-3, now.outcome});
    Values counted;
    for (std::int64_t i = 0; i < sums; ++i) counted.push_back(static_cast<double>(whole[i]));
    return {{"sums", counted, 0},
            {"means", means.values(), rounding<T>()},
            {"mean", mean.values(), rounding<T>()},
            {"grad", g.values(), rounding<T>(2)}};
  }
};
TYPED_TEST(DevicePartUpdate, MatricesOfAdafactorAsTheCpus) {
  for (const MatrixCase& c : {MatrixCase{1, 1, 1, 0, 1},
                              {34, 5, 7, 0, 7},
                              {2, 150, 20, 5, 10},
                              {1, 7, 600, 88, 512},
                              {2, 9, 9, 0, 9, false}})
    expect_as_cpu([&]<class D>() { return c.run<D, TypeParam>(); });
}
TEST(DevicePartUpdateCases, MatricesNeedTheirBarriers) {
  expect_needs_barriers([&]<class D>() { return MatrixCase{1, 700, 40, 0, 40}.run<D, float>(); });
}

template <class D, class T>
Results normalized(std::int64_t n, double size) {
  typename D::template Array<T> x("x", n + 1);
  x.assign(random_values(n + 1, 7, size));
  kernels::normalize(D::stream(), kernels::NormalizeArgs<T>{n, 1e-7, x + 1});
  return {{"x", x.values(), rounding<T>()}};
}
TYPED_TEST(DevicePartUpdate, NormalizesAsTheCpus) {
  for (const std::int64_t n : {1, 100, 20000})
    for (const double size : {1.0, 0.0})
      expect_as_cpu([&]<class D>() { return normalized<D, TypeParam>(n, size); });
}
TEST(DevicePartUpdateCases, NormalizingNeedsItsBarriers) {
  expect_needs_barriers([&]<class D>() { return normalized<D, float>(20000, 1); });
}

}  // namespace
}  // namespace tfm::test
