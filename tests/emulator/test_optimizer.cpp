// The update rules and the exact sum of squares on the emulator.
#include "kernel_runs.h"
#include "kernels/optimizer.h"

namespace tfm::test {
namespace {

template <class T>
class DeviceUpdate : public testing::Test {};
TYPED_TEST_SUITE(DeviceUpdate, Wides);

template <class P>
class DeviceWeights : public testing::Test {};
TYPED_TEST_SUITE(DeviceWeights, Floats);

template <class D>
struct StepMemory {
  StepMemory(const StepNumbers& now, const StepOutcome& found) { *numbers = now, *outcome = found; }
  typename D::template Array<StepNumbers> numbers{"numbers", 1};
  typename D::template Array<StepOutcome> outcome{"outcome", 1};
};

struct UpdateCase {
  std::int64_t n;
  int first;
  bool decoupled, momentum, applied = true;

  template <class D, class T, class P>
  Results run() const {
    const std::int64_t all = n + 7;
    WeightArray<D, P> p("param", random_values(all, 1)), q("sgd", random_values(all, 1));
    typename D::template Array<T> m("m", all), v("v", all), buffer("buffer", all),
        ema("average", all), g("grad", rounded<T>(random_values(all, 5)));
    m.assign(random_values(all, 2, 0.1)), ema.assign(random_values(all, 4));
    Values square = random_values(all, 3);
    for (double& x : square) x *= x;
    v.assign(square), buffer.assign(random_values(all, 6));
    auto& s = D::stream();
    const Weights<P> by_moments = p, by_velocity = q;
    const kernels::UpdateRange<T, P> moments{n,         true,      by_moments + first, g + first,
                                             m + first, v + first, ema + first},
        velocity{n, true, by_velocity + first, g + first, momentum ? buffer + first : nullptr};
    StepMemory<D> by_adam({.update = {0.01, 0.3, 0.02, 0.99}},
                          {.gradient_factor = 0.5, .applied = applied}),
        by_sgd({.update = {.lr = 0.1}}, {.gradient_factor = 2, .applied = 1});
    kernels::update(
        s, kernels::UpdateArgs<kernels::AdamRule, T, P>{{&moments, 1},
                                                        {.decay = 0.1, .decoupled = decoupled},
                                                        by_adam.numbers,
                                                        by_adam.outcome});
    kernels::update(s, kernels::UpdateArgs<kernels::SgdRule, T, P>{
                           {&velocity, 1}, {0.9, 0.01}, by_sgd.numbers, by_sgd.outcome});
    const double bound = rounding<T>(2);
    return {{"param", p.values(), bound},
            {"m", m.values(), bound},
            {"v", v.values(), bound},
            {"sgd", q.values(), bound},
            {"buffer", buffer.values(), bound},
            {"average", ema.values(), bound},
            {"rounded", p.rounded(), rounding<P>(4)},
            {"rounded", q.rounded(), rounding<P>(4)}};
  }
};
TYPED_TEST(DeviceUpdate, AsTheCpus) {
  for (const UpdateCase& c : {UpdateCase{1, 0, true, false},
                              {3000, 0, false, true},
                              {4097, 1, true, true},
                              {64, 3, true, true},
                              {64, 0, true, true, false}})
    expect_as_cpu([&]<class D>() { return c.run<D, TypeParam, TypeParam>(); });
}
TEST(DeviceUpdateCases, RoundWhatTheModelReads) {
  for (const UpdateCase& c : {UpdateCase{3000, 0, true, true}, {2053, 5, false, false}}) {
    expect_as_cpu([&]<class D>() { return c.run<D, float, bf16>(); });
    expect_as_cpu([&]<class D>() { return c.run<D, float, f16>(); });
  }
}

TEST(DeviceUpdateCases, DISABLED_AtRealShapes) {
  const UpdateCase c{(1 << 21) + 5, 0, true, true};
  expect_as_cpu([&]<class D>() { return c.run<D, float, float>(); });
  expect_as_cpu([&]<class D>() { return c.run<D, float, bf16>(); });
}

// Of all lower halves of ordinary numbers, the largest ones, infinity with NaN, and denormals.
template <class D, class P>
Results swapped() {
  Values average;
  for (const std::uint32_t high : {0x3F80u, 0x7F7Fu, 0xFF80u, 0x8000u})
    for (std::uint32_t low = 0; low < 0x10000; low += 3)
      average.push_back(std::bit_cast<float>(high << 16 | low));
  const std::int64_t n = std::ssize(average);
  WeightArray<D, P> p("param", random_values(n + 1, 1));
  const Weights<P> weights = p;
  typename D::template Array<Accum<P>> to("average", n);
  to.assign(average);
  kernels::swap(D::stream(), kernels::SwapArgs<P>{n, weights + 1, to});
  Results all{{"param", p.values(), 0}, {"average", to.values(), 0}, {"rounded", p.rounded(), 0}};
  for (Result& r : all)  // NaN is not close to itself
    for (double& x : r.values) x = std::isnan(x) ? 12345 : std::isinf(x) ? 54321 : x;
  return all;
}
TYPED_TEST(DeviceWeights, ChangePlacesWithTheAverage) {
  expect_as_cpu([&]<class D>() { return swapped<D, TypeParam>(); });
}

// More ranges than one launch takes, of all lengths, every other one without decay.
template <class D>
Results update_ranges() {
  constexpr std::int64_t kUnit = 36, all = 70 * 64 * kUnit;
  typename D::template Array<float> p("param", all), m("m", all), v("v", all),
      g("grad", random_values(all, 5));
  p.assign(random_values(all, 1)), m.assign(Values(all, 0)), v.assign(Values(all, 0.5));
  std::vector<kernels::UpdateRange<float>> ranges;
  for (std::int64_t i = 0; i < 70; ++i) {
    const std::int64_t at = 64 * kUnit * i;
    ranges.push_back({i % 64 * kUnit, i % 2 == 0, p + at, g + at, m + at, v + at});
  }
  StepMemory<D> step({.update = {.lr = 0.01}}, {.gradient_factor = 1, .applied = 1});
  kernels::update(D::stream(), kernels::UpdateArgs<kernels::AdamRule, float>{
                                   ranges, {.decay = 0.5}, step.numbers, step.outcome});
  return {{"param", p.values(), rounding<float>(2)},
          {"m", m.values(), rounding<float>(2)},
          {"v", v.values(), rounding<float>(2)}};
}
TEST(DeviceUpdateCases, ManyRanges) {
  expect_as_cpu([&]<class D>() { return update_ranges<D>(); });
}

// Limbs, carried as the CPU's are, are its bits.
struct SquareCase {
  std::int64_t n;
  int first;
  double size;
  bool broken = false, bad_loss = false;

  template <class D, class T>
  Results run() const {
    Values x = random_values(n + first, 9, size);
    for (std::size_t i = 0; i < x.size(); i += 3) x[i] *= 1e-12;
    if (broken) x.back() = std::numeric_limits<double>::infinity();
    typename D::template Array<T> dx("x", rounded<T>(x));
    const std::int64_t half = n / 128 * 64;  // whole blocks
    const kernels::Range ranges[] = {{first, first + half}, {first + half, first + n}};
    StepMemory<D> step({.loss_scale = 4}, {.loss = {1, bad_loss ? std::nan("") : 0}});
    kernels::square_sum(D::stream(),
                        kernels::SquareSumArgs<T>{dx, ranges, step.numbers, step.outcome});
    kernels::clip(D::stream(), {0.5, step.numbers, step.outcome});
    const StepOutcome& found = *step.outcome;
    const SquareSum& sum = found.squares;
    Values limbs(sum.limb, sum.limb + 5);
    for (const double exact : {sum.too_large, sum.bad_losses, static_cast<double>(found.applied)})
      limbs.push_back(exact);
    if (sum.too_large > 0) return {{"limbs", limbs, 0}};
    return {
        {"limbs", limbs, 0},
        {"plain", {sum.plain / (size * size)}, 1e-12 * static_cast<double>(n + 1)},
        {"norm", {found.norm / size, found.gradient_factor}, 1e-14 * static_cast<double>(n + 1)}};
  }
};
TYPED_TEST(DeviceUpdate, SquareSumsHaveTheCpusBits) {
  for (const SquareCase& c : {SquareCase{0, 0, 1},
                              {1, 0, 1},
                              {63, 0, 1e-3},
                              {64, 1, 10},
                              {8192, 0, 1},
                              {100000, 0, 1e3},
                              {9001, 3, 1e-6},
                              {20000, 0, 1e7}})
    expect_as_cpu([&]<class D>() { return c.run<D, TypeParam>(); });
}
TEST(DeviceSquareSum, DISABLED_AtRealShapes) {
  const SquareCase c{(1 << 22) + 3, 0, 1e-3};
  expect_as_cpu([&]<class D>() { return c.run<D, float>(); });
}
TEST(DeviceSquareSum, SaysWhatIsNotFinite) {
  for (const SquareCase& c : {SquareCase{500, 0, 1, true}, {500, 0, 1, false, true}}) {
    EXPECT_EQ((c.run<OnCpu, float>()[0].values.back()), 0);
    expect_as_cpu([&]<class D>() { return c.run<D, float>(); });
  }
}
TEST(DeviceSquareSum, NeedsItsBarriers) {
  expect_needs_barriers([&]<class D>() { return SquareCase{20000, 0, 1}.run<D, float>(); });
}

}  // namespace
}  // namespace tfm::test
