// The update rules, the exact sum of squares and gradient clipping.
#include <array>
#include <random>

#include "kernels/optimizer.h"
#include "support/kernel_case.h"

namespace tfm::test {
namespace {

template <class T>
class Update : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Update, Types);

template <class Rule, class T, class P>
void update(cpu::Stream& s, const Rule& rule, const kernels::UpdateRange<T, P>& range,
            const UpdateNumbers& now, double factor = 1, bool applied = true) {
  const StepNumbers numbers{.update = now};
  const StepOutcome outcome{.gradient_factor = factor, .applied = applied};
  kernels::update(s, kernels::UpdateArgs<Rule, T, P>{{&range, 1}, rule, &numbers, &outcome});
}

TYPED_TEST(Update, AdamFollowsItsEquations) {
  using T = TypeParam;
  for (bool decoupled : {true, false})
    for (std::int64_t n : {1, 37, 20000}) {
      const Values grad[2] = {random_values(n, 1, 0.1), random_values(n, 2, 0.1)};
      Values p = random_values(n, 3), m(n), v(n);
      Guarded<T> gp(p), gm(m), gv(v);
      for (int t = 1; t <= 2; ++t) {
        Guarded<T> gg(grad[t - 1]);
        const kernels::UpdateRange<T> range{n, true, gp, gg, gm, gv};
        const UpdateNumbers now{0.01, 1 - std::pow(0.9, t), 1 - std::pow(0.95, t)};
        cpu::Stream s{t};
        update(s, kernels::AdamRule{0.9, 0.95, 1e-8, 0.1, decoupled}, range, now, 0.5);
        for (std::int64_t i = 0; i < n; ++i) {
          double g = grad[t - 1][i] * 0.5;
          if (decoupled)
            p[i] *= 1 - 0.01 * 0.1;
          else
            g += 0.1 * p[i];
          m[i] = 0.9 * m[i] + 0.1 * g;
          v[i] = 0.95 * v[i] + 0.05 * g * g;
          p[i] -= 0.01 / now.correction1 * m[i] / (std::sqrt(v[i] / now.correction2) + 1e-8);
        }
      }
      expect_close(gm.values(), m, tolerance<T>(0.5), "m");
      expect_close(gv.values(), v, tolerance<T>(0.5), "v");
      expect_close(gp.values(), p, tolerance<T>(2), "p");
    }
}

TYPED_TEST(Update, LoadRuleTakesTheSignOfIntegers) {
  using T = TypeParam;
  const Values grad{-3e6, -1, 0, 1, 2, 4e7, 0, -2, 1}, before = random_values(9, 3);
  Values after = before;
  for (std::size_t i = 0; i < grad.size(); ++i)
    after[i] -= grad[i] > 0 ? 0.25 : grad[i] < 0 ? -0.25 : 0;
  for (const bool applied : {true, false}) {
    Guarded<T> p(before), g(grad);
    cpu::Stream s{1};
    update(s, kernels::LoadRule{0.25}, kernels::UpdateRange<T>{9, false, p, g}, {.lr = 3}, 1e-3,
           applied);
    expect_close(p.values(), applied ? after : before, tolerance<T>(1), "p");
  }
}

TYPED_TEST(Update, SgdFollowsItsEquations) {
  using T = TypeParam;
  const std::int64_t n = 133;
  for (double momentum : {0.0, 0.9}) {
    Values p = random_values(n, 3), buffer(n);
    Guarded<T> gp(p), gb(buffer);
    for (int t = 1; t <= 3; ++t) {
      const Values grad = random_values(n, 10 + t);
      Guarded<T> gg(grad);
      cpu::Stream s{1};
      const kernels::UpdateRange<T> range{n, true, gp, gg, momentum > 0 ? gb.data() : nullptr};
      update(s, kernels::SgdRule{momentum, 0.01}, range, {.lr = 0.1}, 0.5);
      for (std::int64_t i = 0; i < n; ++i) {
        const double d = 0.5 * grad[i] + 0.01 * p[i];
        buffer[i] = momentum * buffer[i] + d;
        p[i] -= 0.1 * (momentum > 0 ? buffer[i] : d);
      }
    }
    expect_close(gp.values(), p, tolerance<T>(2), "p");
  }
}

TYPED_TEST(Update, TheAverageFollowsTheWeights) {
  using T = TypeParam;
  const std::int64_t n = 133;
  const Values before = random_values(n, 2);
  Guarded<T> gp(random_values(n, 1)), ga(before), gg(random_values(n, 3));
  cpu::Stream s{2};
  const kernels::UpdateRange<T> range{n, true, gp, gg, nullptr, nullptr, ga};
  update(s, kernels::SgdRule{}, range, {.lr = 0.1, .keep = 0.9});
  Values want(n);
  for (std::int64_t i = 0; i < n; ++i) want[i] = 0.9 * before[i] + 0.1 * gp.values()[i];
  expect_close(ga.values(), want, tolerance<T>(2), "average");
}

// Master weights of 16-bit parameters, between two bands that must keep their bits.
template <class P>
struct GuardedMasters;
template <>
struct GuardedMasters<f16> {
  explicit GuardedMasters(const Values& v) : master(v), rounded(v) {}
  MasterWeights weights() { return {master, rounded}; }
  Guarded<float> master;
  Guarded<f16> rounded;
};
template <>
struct GuardedMasters<bf16> {
  explicit GuardedMasters(const Values& v) : remainder(v), rounded(v) {
    for (std::size_t i = 0; i < v.size(); ++i)
      weights().set(static_cast<std::int64_t>(i), static_cast<float>(v[i]));
  }
  SplitMasterWeights weights() { return {reinterpret_cast<Remainder*>(remainder.data()), rounded}; }
  Guarded<bf16> remainder, rounded;
};

template <class P>
class UpdateOfHalves : public testing::Test {};
using Halves = testing::Types<bf16, f16>;
TYPED_TEST_SUITE(UpdateOfHalves, Halves);

// Twenty updates have the bits of those of weights that lie in memory as they are.
TYPED_TEST(UpdateOfHalves, HasTheBitsOfFp32) {
  using P = TypeParam;
  for (const std::int64_t n : {1, 15, 37, 20000}) {
    const Values start = random_values(n, 1);
    Guarded<float> p(start), m(Values(n, 0)), v(Values(n, 0)), ema(start), m2(m), v2(v), ema2(ema);
    GuardedMasters<P> half(start);
    for (int t = 1; t <= 20; ++t) {
      Guarded<float> g(random_values(n, 10 + static_cast<std::uint32_t>(t), 0.1));
      const UpdateNumbers now{1e-3, 1 - std::pow(0.9, t), 1 - std::pow(0.95, t), 0.9};
      const kernels::AdamRule rule{.decay = 0.1};
      cpu::Stream s{1 + t % 2};
      update(s, rule, kernels::UpdateRange<float>{n, true, p, g, m, v, ema}, now);
      update(s, rule, kernels::UpdateRange<float, P>{n, true, half.weights(), g, m2, v2, ema2},
             now);
    }
    for (std::int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(half.weights()[i], p[i]) << i;
      const P expected =
          std::is_same_v<P, bf16> ? std::bit_cast<P>(split_weight(p[i]).rounded) : P(p[i]);
      ASSERT_EQ(half.rounded[i].bits, expected.bits) << i;
    }
    EXPECT_TRUE(same_bits(m.raw(), m2.raw()) && same_bits(v.raw(), v2.raw()) &&
                same_bits(ema.raw(), ema2.raw()));
  }
}

TYPED_TEST(UpdateOfHalves, ChangesPlacesWithTheAverage) {
  const Values a = random_values(37, 1), b = random_values(37, 2);
  GuardedMasters<TypeParam> half(a);
  Guarded<float> average(b);
  cpu::Stream s{1};
  kernels::swap(s, kernels::SwapArgs<TypeParam>{37, half.weights(), average});
  const GuardedMasters<TypeParam> expected(b);
  EXPECT_EQ(average.values(), a);
  for (std::int64_t i = 0; i < 37; ++i) EXPECT_EQ(half.weights()[i], static_cast<float>(b[i]));
}

TYPED_TEST(Update, BitsDoNotDependOnSlices) {  // what a shard computes equals its part of the whole
  using T = TypeParam;
  const std::int64_t n = 40003;
  const Values g = random_values(n, 1), p = random_values(n, 2), m = random_values(n, 3),
               v = Values(n, 0.25);
  for (bool adam : {true, false}) {
    std::vector<T> all[3];
    int round = 0;
    for (const std::vector<std::int64_t>& cuts :
         {std::vector<std::int64_t>{0, n}, {0, n}, {0, 5, 8209, 8210, 30001, n}}) {
      Guarded<T> gg(g), gp(p), gm(m), gv(v);
      cpu::Stream s{round == 1 ? 3 : 1};
      for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
        const std::int64_t at = cuts[i], count = cuts[i + 1] - at;
        const kernels::UpdateRange<T> range{count, true, gp + at, gg + at, gm + at, gv + at};
        if (adam)
          update(s, kernels::AdamRule{.decay = 0.1}, range, {.lr = 0.01});
        else
          update(s, kernels::SgdRule{0.9, 0.01}, range, {.lr = 0.1});
      }
      all[round++] = gp.raw();
    }
    EXPECT_TRUE(same_bits(all[0], all[1]));
    EXPECT_TRUE(same_bits(all[0], all[2]));
  }
}

TYPED_TEST(Update, SkippedStepsChangeNothing) {
  using T = TypeParam;
  const Values before = random_values(37, 1);
  Guarded<T> gp(before), gg(random_values(37, 2)), gm(before), gv(before), ga(before);
  cpu::Stream s{1};
  update(s, kernels::AdamRule{}, kernels::UpdateRange<T>{37, true, gp, gg, gm, gv, ga}, {.lr = 0.1},
         1, false);
  for (Guarded<T>* same : {&gp, &gm, &gv, &ga})
    EXPECT_EQ(same->values(), Guarded<T>(before).values());
}

template <class T>
SquareSum square_sum(cpu::Stream& s, const T* x, std::span<const kernels::Range> ranges) {
  const StepNumbers numbers;
  StepOutcome outcome;
  kernels::square_sum(s, kernels::SquareSumArgs<T>{x, ranges, &numbers, &outcome});
  return outcome.squares;
}
double value(const SquareSum& a) {
  double sum = 0;
  for (int k = 4; k >= 0; --k) sum = sum * 0x1p32 + a.limb[k];
  return sum * 0x1p-88;
}

TYPED_TEST(Update, SquareSumIsExactOverBlocks) {
  using T = TypeParam;
  for (std::int64_t n : {0, 1, 63, 64, 1000, 300001}) {
    const Values v = random_values(n, 4, 3);
    const std::vector<T> x(v.begin(), v.end());
    double want = 0;
    for (double e : v) want += e * e;
    const kernels::Range all{0, n};
    std::vector<kernels::Range> several;  // blocks of 64 in any split
    for (std::int64_t at = 0; at < n; at += 64 * 77)
      several.push_back({at, std::min<std::int64_t>(at + 64 * 77, n)});
    cpu::Stream one{1}, three{3};
    const SquareSum whole = square_sum(one, x.data(), {&all, 1}),
                    team = square_sum(three, x.data(), {&all, 1}),
                    parts = square_sum<T>(one, x.data(), several);
    EXPECT_NEAR(value(whole), want, 1e-12 * want);
    EXPECT_EQ(whole.too_large + team.too_large + parts.too_large, 0);
    for (int k = 0; k < 5; ++k) {
      EXPECT_EQ(whole.limb[k], team.limb[k]);
      EXPECT_EQ(whole.limb[k], parts.limb[k]);
      EXPECT_TRUE(whole.limb[k] >= 0 && whole.limb[k] < 0x1p32);
    }
  }
}

TYPED_TEST(Update, SquareSumOfABlockDoesNotDependOnWhetherItIsWhole) {
  using T = TypeParam;
  const Values v = random_values(64, 4, 3);
  std::vector<T> x(v.begin(), v.end());
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] *= std::ldexp(T{1}, static_cast<int>(i % 23) - 11);  // so that the order of adding shows
  cpu::Stream s{1};
  for (std::size_t n = 63; n > 40; --n) {
    x[n] = 0;
    const kernels::Range whole{0, 64}, part{0, static_cast<std::int64_t>(n)};
    for (int k = 0; k < 5; ++k)
      EXPECT_EQ(square_sum(s, x.data(), {&whole, 1}).limb[k],
                square_sum(s, x.data(), {&part, 1}).limb[k]);
  }
}

TYPED_TEST(Update, SquareSumKnowsItsLimits) {
  using T = TypeParam;
  cpu::Stream s{2};
  std::vector<T> x(100000, T{0});
  x[70000] = T{0x1p17};
  const kernels::Range all{0, 100000}, few{0, 64};
  EXPECT_EQ(value(square_sum(s, x.data(), {&all, 1})), 0x1p34);
  EXPECT_EQ(square_sum(s, x.data(), {&all, 1}).too_large, 0);
  for (T bad :
       {T{0x1p18}, std::numeric_limits<T>::infinity(), std::numeric_limits<T>::quiet_NaN()}) {
    x[70000] = bad;
    EXPECT_EQ(square_sum(s, x.data(), {&all, 1}).too_large, 1);
  }
  x.assign(64, T{0});
  x[5] = T{0x1p-44};  // the least square that is seen
  EXPECT_EQ(square_sum(s, x.data(), {&few, 1}).limb[0], 1);
}

TEST(Clip, NormsDependOnTheWholeSumAlone) {  // not on how ranks' sums were cut into limbs
  std::mt19937 random(5);
  cpu::Stream s{1};
  const StepNumbers numbers;
  const auto norm = [&](const SquareSum& squares) {
    StepOutcome outcome{.squares = squares};
    kernels::clip(s, {0, &numbers, &outcome});
    return outcome.norm;
  };
  for (int i = 0; i < 1000; ++i) {
    SquareSum carried;
    for (double& limb : carried.limb) limb = random() | 1u;
    SquareSum split = carried;
    for (int k = 0; k < 4; ++k) split.limb[k] += 3 * 0x1p32, split.limb[k + 1] -= 3;
    EXPECT_EQ(norm(carried), norm(split));
  }
}

TEST(Clip, FollowsTheNormAndTheScale) {
  const auto clipped = [](double norm, double most, double scale, double bad_losses = 0) {
    const StepNumbers numbers{.loss_scale = scale};
    StepOutcome outcome{
        .squares = {.too_large = 1, .bad_losses = bad_losses, .plain = norm * norm}};
    cpu::Stream s{1};
    kernels::clip(s, {most, &numbers, &outcome});
    return outcome;
  };
  EXPECT_EQ(clipped(3, 0, 1).gradient_factor, 1);
  EXPECT_EQ(clipped(3, 4, 8).gradient_factor, 1.0 / 8);
  EXPECT_DOUBLE_EQ(clipped(3, 1.5, 4).gradient_factor, 1.5 / (3 + 1e-6) / 4);
  EXPECT_EQ(clipped(3, 1.5, 4).norm, 3);
  EXPECT_EQ(clipped(1e12, 1, 1).applied, 1);
  EXPECT_EQ(clipped(3, 1, 1, 1).applied, 0);
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
    EXPECT_EQ(clipped(bad, 1, 1).applied, 0);
}

TEST(Clip, AnAssumedUpdateIsThatOfTheStepBefore) {
  cpu::Stream s{1};
  for (const std::uint32_t assumes : {0, 1})
    for (const std::int64_t before : {0, 1}) {
      const StepNumbers numbers{.assumes_update = assumes};
      StepOutcome outcome{.applied = before};
      kernels::clip(s, {1, &numbers, &outcome});
      EXPECT_EQ(outcome.applied, !assumes || before);
    }
}

}  // namespace
}  // namespace tfm::test
