// LayerNorm, RMSNorm and the activations: values, gradients, row independence.
#include <numeric>

#include "kernels/activation.h"
#include "kernels/norm.h"
#include "kernels/width_norm.h"
#include "support/kernel_case.h"

namespace tfm::test {
namespace {

using kernels::Activation;
template <class T>
class Norm : public testing::Test {};
template <class T>
class Act : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Norm, Types);
TYPED_TEST_SUITE(Act, Types);

struct NormCase {
  std::int64_t rows, cols;
  bool rms, shift;
  Values x = random_values(rows * cols, 1, 2), gain = random_values(cols, 2),
         bias = shift ? random_values(cols, 3) : Values{};
  Values dy = random_values(rows * cols, 4);
};

template <class T>
struct NormResult {
  std::vector<T> y, mean, rstd, dx, dgain, dshift;
};

template <class T>
NormResult<T> run(const NormCase& c, int threads, bool accumulate) {
  cpu::Stream s{threads};
  Guarded<T> x(c.x), gain(c.gain), shift(c.bias), y(c.rows * c.cols), mean(c.rows), rstd(c.rows),
      dy(c.dy);
  kernels::norm(s, kernels::NormArgs<T>{c.rows, c.cols, x, gain, c.shift ? shift.data() : nullptr,
                                        y, mean, rstd, 1e-5, c.rms});
  const T start = accumulate ? T{1} : std::numeric_limits<T>::quiet_NaN();
  Guarded<T> dx(c.rows * c.cols, start), dgain(c.cols, start), dshift(c.cols, start);
  kernels::norm_backward(s, kernels::NormBackwardArgs<T>{
                                c.rows, c.cols, dy, x, gain, mean, rstd, dx, accumulate, dgain,
                                accumulate, c.shift ? dshift.data() : nullptr, accumulate, c.rms});
  return {y.raw(), mean.raw(), rstd.raw(), dx.raw(), dgain.raw(), dshift.raw()};
}

template <class T>
Values values(const std::vector<T>& v) {
  return Values(v.begin(), v.end());
}

// As the Annotated Transformer writes LayerNorm, with the unbiased deviation, and many RMSNorm. A
// row without variance is 0, and passes nothing that is not finite.
TYPED_TEST(Norm, EpsilonOutsideOfTheRoot) {
  using T = TypeParam;
  constexpr double kEps = 0.25;
  for (const bool rms : {false, true}) {
    NormCase c{5, 7, rms, !rms};
    if (!rms) std::fill_n(c.x.begin() + 7, 7, 1.5);
    cpu::Stream s{1};
    Guarded<T> x(c.x), gain(c.gain), shift(c.bias), y(35), mean(5), rstd(5), dy(c.dy), dx(35),
        dgain(7), dshift(7);
    kernels::norm(
        s, kernels::NormArgs<T>{
               5, 7, x, gain, rms ? nullptr : shift.data(), y, mean, rstd, kEps, rms, {}, 0, true});
    kernels::norm_backward(s, kernels::NormBackwardArgs<T>{5,
                                                           7,
                                                           dy,
                                                           x,
                                                           gain,
                                                           mean,
                                                           rstd,
                                                           dx,
                                                           false,
                                                           dgain,
                                                           false,
                                                           rms ? nullptr : dshift.data(),
                                                           false,
                                                           rms,
                                                           {},
                                                           0,
                                                           kEps,
                                                           true});
    for (std::int64_t r = 0; r < 5; ++r) {
      const double* row = &c.x[static_cast<std::size_t>(7 * r)];
      const double m = rms ? 0 : std::accumulate(row, row + 7, 0.0) / 7;
      double squares = 0;
      for (int i = 0; i < 7; ++i) squares += (row[i] - m) * (row[i] - m);
      const double deviation = std::sqrt(squares / (rms ? 7 : 6));
      for (int i = 0; i < 7; ++i) {
        const auto at = static_cast<std::size_t>(7 * r + i);
        EXPECT_NEAR(y.data()[at],
                    (row[i] - m) / (deviation + kEps) * c.gain[i] + (rms ? 0 : c.bias[i]),
                    tolerance<T>(8));
        EXPECT_TRUE(std::isfinite(dx.data()[at]));
      }
    }
  }
}

TYPED_TEST(Norm, ForwardMatchesTheDefinition) {
  for (bool rms : {false, true})
    for (bool shift : {false, true})
      for (auto [rows, cols] : {std::pair{1, 1}, {3, 7}, {70, 65}, {5, 768}, {2, 1601}}) {
        const NormCase c{rows, cols, rms, shift};
        const auto r = run<TypeParam>(c, 1, false);
        // One column has no variance: what is left is x - mean, times 1/sqrt(eps).
        const double amplify = cols == 1 ? 400 : 1;
        expect_close(values(r.y), reference::norm(rows, cols, c.x, c.gain, c.bias, 1e-5, rms),
                     tolerance<TypeParam>(4 * amplify), "y");
      }
}

// A weight of the gain less 1.
TYPED_TEST(Norm, AddsAnOffsetToTheGain) {
  using T = TypeParam;
  cpu::Stream s{1};
  for (const bool rms : {false, true}) {
    NormCase c{9, 65, rms, !rms};
    NormCase less = c;
    for (double& g : less.gain) g -= 1;
    Guarded<T> x(c.x), gain(less.gain), shift(c.bias), y(9 * 65), mean(9), rstd(9), dy(c.dy);
    kernels::norm(
        s, kernels::NormArgs<T>{
               9, 65, x, gain, c.shift ? shift.data() : nullptr, y, mean, rstd, 1e-5, rms, {}, 1});
    Guarded<T> dx(9 * 65), dgain(65);
    kernels::norm_backward(
        s,
        kernels::NormBackwardArgs<T>{
            9, 65, dy, x, gain, mean, rstd, dx, false, dgain, false, nullptr, false, rms, {}, 1});
    const auto want = run<T>(c, 1, false);
    expect_close(y.values(), values(want.y), tolerance<T>(8), "y");
    expect_close(dx.values(), values(want.dx), tolerance<T>(20), "dx");
    expect_close(dgain.values(), values(want.dgain), tolerance<T>(20), "dgain");
  }
}

// Two halves of the columns, whose sums are added up in between.
TYPED_TEST(Norm, OverSharedColumnsIsThatOfTheWholeRow) {
  for (const auto& [rows, cols] : {std::pair{3, 2}, {70, 66}, {5, 768}}) {
    const NormCase c{rows, cols, true, false};
    const auto whole = run<TypeParam>(c, 1, false);
    cpu::Stream s{1};
    Guarded<TypeParam> x(c.x), gain(c.gain), dy(c.dy);
    Guarded<TypeParam> y(rows * cols), dx(rows * cols), dgain(cols);
    std::vector<TypeParam> sums(2 * rows), products(2 * rows);
    const std::int64_t half = cols / 2;
    const kernels::SharedRows of{rows, half, cols};
    for (const int k : {0, 1}) {
      const auto at = k * half;
      kernels::row_sums(s, kernels::RowSumsArgs<TypeParam>{of, x.data() + at, nullptr, nullptr,
                                                           sums.data() + k * rows});
      kernels::row_sums(
          s, kernels::RowSumsArgs<TypeParam>{of, x.data() + at, dy.data() + at, gain.data() + at,
                                             products.data() + k * rows});
    }
    for (std::int64_t r = 0; r < rows; ++r)
      sums[r] += sums[rows + r], products[r] += products[rows + r];
    for (const int k : {0, 1}) {
      const auto at = k * half;
      const kernels::WidthNormArgs<TypeParam> forward{
          of, cols, 1e-5, sums.data(), x.data() + at, gain.data() + at, y.data() + at};
      kernels::width_norm(s, forward);
      kernels::width_norm_backward(s, kernels::WidthNormBackwardArgs<TypeParam>{
                                          forward, products.data(), dy.data() + at, dx.data() + at,
                                          false, dgain.data() + at, false});
    }
    const double unit = tolerance<TypeParam>(40);
    expect_close(values(y.raw()), values(whole.y), unit, "y");
    expect_close(values(dx.raw()), values(whole.dx), unit, "dx");
    expect_close(values(dgain.raw()), values(whole.dgain), unit, "dgain");
  }
}

TEST(NormGradient, AgreesWithCentralDifferences) {
  for (bool rms : {false, true})
    for (bool shift : {false, true}) {
      const NormCase c{4, 19, rms, shift};
      const auto r = run<double>(c, 1, false);
      auto loss = [&](const Values& x, const Values& gain, const Values& bias) {
        NormCase at = c;
        at.x = x, at.gain = gain, at.bias = bias;
        return dot(values(run<double>(at, 1, false).y), c.dy);
      };
      expect_close(r.dx, differences(c.x, [&](const Values& x) { return loss(x, c.gain, c.bias); }),
                   1e-8, "dx");
      expect_close(r.dgain,
                   differences(c.gain, [&](const Values& g) { return loss(c.x, g, c.bias); }), 1e-8,
                   "dgain");
      if (shift)
        expect_close(r.dshift,
                     differences(c.bias, [&](const Values& b) { return loss(c.x, c.gain, b); }),
                     1e-8, "dshift");
    }
}

TYPED_TEST(Norm, BackwardInFloatAndAccumulated) {
  using T = TypeParam;
  for (bool rms : {false, true})
    for (auto [rows, cols] : {std::pair{1, 5}, {130, 33}, {1100, 48}}) {
      const NormCase c{rows, cols, rms, true};
      const auto want = run<double>(c, 1, false);
      const auto assigned = run<T>(c, 1, false), added = run<T>(c, 1, true);
      expect_close(values(assigned.dx), want.dx, tolerance<T>(20), "dx");
      expect_close(values(assigned.dgain), want.dgain, tolerance<T>(2, rows * 4), "dgain");
      expect_close(values(assigned.dshift), want.dshift, tolerance<T>(2, rows * 4), "dshift");
      expect_close(values(added.dx), plus(want.dx, Values(rows * cols, 1)), tolerance<T>(20),
                   "added dx");
      expect_close(values(added.dgain), plus(want.dgain, Values(cols, 1)),
                   tolerance<T>(2, rows * 4), "added dgain");
      expect_close(values(added.dshift), plus(want.dshift, Values(cols, 1)),
                   tolerance<T>(2, rows * 4), "added dshift");
    }
}

TYPED_TEST(Norm, BitsDependOnNeitherTeamNorNeighbours) {
  using T = TypeParam;
  const NormCase c{700, 97, false, true};
  const auto one = run<T>(c, 1, false);
  for (int threads : {2, 3}) {
    const auto more = run<T>(c, threads, false);
    EXPECT_TRUE(same_bits(one.y, more.y) && same_bits(one.dx, more.dx) &&
                same_bits(one.dgain, more.dgain) && same_bits(one.dshift, more.dshift));
  }
  NormCase part{3, 97, false, true};
  const std::int64_t at = 211 * 97;
  part.x.assign(c.x.begin() + at, c.x.begin() + at + 3 * 97);
  part.dy.assign(c.dy.begin() + at, c.dy.begin() + at + 3 * 97);
  const auto some = run<T>(part, 1, false);
  EXPECT_TRUE(same_bits(some.y, {one.y.begin() + at, one.y.begin() + at + 3 * 97}));
  EXPECT_TRUE(same_bits(some.dx, {one.dx.begin() + at, one.dx.begin() + at + 3 * 97}));
}

TEST(NormGradient, InputGradientMayBeLeftOut) {
  const NormCase c{9, 20, false, true};
  const auto want = run<double>(c, 1, false);
  cpu::Stream s{1};
  Guarded<double> x(c.x), gain(c.gain), mean(Values(want.mean)), rstd(Values(want.rstd)), dy(c.dy),
      dgain(20), dshift(20);
  kernels::norm_backward(
      s, kernels::NormBackwardArgs<double>{9, 20, dy, x, gain, mean, rstd, nullptr, false, dgain,
                                           false, dshift, false, false});
  EXPECT_TRUE(same_bits(dgain.raw(), want.dgain) && same_bits(dshift.raw(), want.dshift));
}

constexpr Activation kKinds[] = {Activation::relu, Activation::gelu, Activation::gelu_tanh,
                                 Activation::silu, Activation::tanh};

TYPED_TEST(Act, ForwardMatchesTheDefinition) {
  using T = TypeParam;
  for (Activation kind : kKinds)
    for (bool gated : {false, true})
      for (auto [rows, cols] : {std::pair{1, 1}, {5, 37}, {300, 65}}) {
        Values x = random_values(rows * cols * (gated ? 2 : 1), 5, 6);
        if (!gated && cols == 65)
          for (int i = 0; i < 200; ++i) x[i] = i - 100;  // far tails
        const Values want = reference::activation(kind, gated, rows, cols, x);
        std::vector<T> bits[2];
        for (int threads : {1, 3}) {
          cpu::Stream s{threads};
          Guarded<T> gx(x), gy(rows * cols);
          kernels::activation(s, kernels::ActivationArgs<T>{rows, cols, kind, gated, gx, gy});
          const Values got = gy.values();
          for (std::size_t i = 0; i < got.size();
               ++i) {  // relative to the input: x times a probability
            const double in = gated ? std::abs(x[i / cols * 2 * cols + i % cols] *
                                               x[(i / cols * 2 + 1) * cols + i % cols])
                                    : std::abs(x[i]);
            ASSERT_NEAR(got[i], want[i], tolerance<T>(0.4 * in) + 1e-30)
                << "kind " << int(kind) << " x " << x[i];
          }
          bits[threads / 2] = gy.raw();
        }
        EXPECT_TRUE(same_bits(bits[0], bits[1]));
      }
}

TYPED_TEST(Act, BackwardAgreesWithCentralDifferences) {
  using T = TypeParam;
  for (Activation kind : kKinds)
    for (bool gated : {false, true})
      for (bool accumulate : {false, true}) {
        const std::int64_t rows = 3, cols = 21;
        Values x = random_values(rows * cols * (gated ? 2 : 1), 6, 4);
        for (double& v : x)
          if (std::abs(v) < 0.01) v = 0.5;  // away from the kink
        const Values dy = random_values(rows * cols, 7);
        cpu::Stream s{1};
        Guarded<T> gx(x), gdy(dy),
            dx(x.size(), accumulate ? T{1} : std::numeric_limits<T>::quiet_NaN());
        kernels::activation_backward(s, kernels::ActivationBackwardArgs<T>{
                                            rows, cols, kind, gated, gx, gdy, dx, accumulate});
        Values want = differences(x, [&](const Values& at) {
          return dot(reference::activation(kind, gated, rows, cols, at), dy);
        });
        if (accumulate) want = plus(want, Values(x.size(), 1));
        expect_close(dx.values(), want, sizeof(T) == 4 ? 4e-6 : 2e-9, "dx");
      }
}

// Gates and what they are multiplied by inside and outside the limits.
TYPED_TEST(Act, ClampedGates) {
  using T = TypeParam;
  constexpr std::int64_t n = 25;
  Values x;
  for (int gate = 0; gate < n; ++gate) {
    x.insert(x.end(), n, gate - 12.25);
    for (int up = 0; up < n; ++up) x.push_back(up - 12.25);
  }
  const Values dy = random_values(n * n, 7);
  cpu::Stream s{1};
  Guarded<T> gx(x), gdy(dy), y(n * n), dx(x.size());
  const auto kind = Activation::clamped;
  kernels::activation(s, kernels::ActivationArgs<T>{n, n, kind, true, gx, y});
  kernels::activation_backward(
      s, kernels::ActivationBackwardArgs<T>{n, n, kind, true, gx, gdy, dx, false});
  const auto reference = [&](const Values& at) {
    return reference::activation(kind, true, n, n, at);
  };
  expect_close(y.values(), reference(x), tolerance<T>(60), "y");
  expect_close(dx.values(),
               differences(x, [&](const Values& at) { return dot(reference(at), dy); }),
               sizeof(T) == 4 ? 2e-5 : 2e-8, "dx");
}

TEST(ActivationNumbers, NotANumberStaysOne) {
  cpu::Stream s{1};
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (Activation kind : kKinds) {
    float x[3] = {1, nan, -1}, y[3];
    kernels::activation(s, kernels::ActivationArgs<float>{1, 3, kind, false, x, y});
    EXPECT_TRUE(std::isnan(y[1]) && std::isfinite(y[0]) && std::isfinite(y[2])) << int(kind);
  }
}

}  // namespace
}  // namespace tfm::test
