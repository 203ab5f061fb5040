// Activations, dropout and sums over columns on the emulator.
#include "kernel_runs.h"
#include "kernels/activation.h"
#include "kernels/attention_sinks.h"
#include "kernels/dropout.h"
#include "kernels/elementwise.h"

namespace tfm::test {
namespace {

using kernels::Activation;
template <class T>
class DevicePointwise : public testing::Test {};
TYPED_TEST_SUITE(DevicePointwise, Floats);

constexpr Activation kKinds[] = {Activation::relu, Activation::gelu, Activation::gelu_tanh,
                                 Activation::silu, Activation::tanh};

struct ActivationCase {
  Activation kind;
  bool gated, accumulate;
  std::int64_t rows, cols;
  int first;  // element of its memory that each array starts with

  Values x() const {
    Values v = random_values(rows * cols * (gated ? 2 : 1) + first, 5, 6);
    for (std::size_t i = 0; i < std::min<std::size_t>(v.size(), 40); ++i)
      v[i] = (static_cast<double>(i) - 20) * 5;  // far tails
    return v;
  }
  template <class D, class T>
  Results run() const {
    const std::int64_t n = rows * cols, in = n * (gated ? 2 : 1);
    typename D::template Array<T> gx("x", rounded<T>(x())),
        gdy("dy", rounded<T>(random_values(n + first, 7))), y("y", n + first), dx("dx", in + first);
    y.assign(Values(n + first, 3)), dx.assign(Values(in + first, 0.5));
    kernels::activation(D::stream(),
                        kernels::ActivationArgs<T>{rows, cols, kind, gated, gx + first, y + first});
    kernels::activation_backward(
        D::stream(), kernels::ActivationBackwardArgs<T>{rows, cols, kind, gated, gx + first,
                                                        gdy + first, dx + first, accumulate});
    return {{"y", y.values(), rounding<T>(gated ? 500 : 100)},
            {"dx", dx.values(), rounding<T>(gated ? 100 : 4)}};
  }
};

TYPED_TEST(DevicePointwise, ActivationsAsTheCpus) {
  using T = TypeParam;
  for (Activation kind : kKinds)
    for (bool gated : {false, true})
      for (auto [rows, cols, first] : {std::tuple{1, 1, 0}, {5, 37, 1}, {3, 64, 0}, {2, 2500, 3}}) {
        SCOPED_TRACE(testing::Message()
                     << "kind " << int(kind) << " gated " << gated << " cols " << cols);
        const ActivationCase c{kind, gated, rows == 3, rows, cols, first};
        expect_as_cpu([&]<class D>() { return c.run<D, T>(); });
      }
}

TYPED_TEST(DevicePointwise, ClampedGatesAsTheCpus) {
  for (auto [rows, cols, first] : {std::tuple{5, 37, 1}, {3, 64, 0}})
    expect_as_cpu([&]<class D>() {
      return ActivationCase{Activation::clamped, true, rows == 3, rows, cols, first}
          .template run<D, TypeParam>();
    });
}

TYPED_TEST(DevicePointwise, DISABLED_ActivationsAtRealShapes) {
  for (const ActivationCase& c : {ActivationCase{Activation::gelu_tanh, false, false, 512, 3072, 0},
                                  {Activation::gelu, false, true, 256, 4096, 0},
                                  {Activation::silu, true, false, 128, 14336, 0},
                                  {Activation::relu, false, false, 512, 2048, 0}})
    expect_as_cpu([&]<class D>() { return c.run<D, TypeParam>(); });
}

TYPED_TEST(DevicePointwise, ActivationsMatchTheirDefinition) {
  using T = TypeParam;
  for (Activation kind : kKinds)
    for (bool gated : {false, true}) {
      const ActivationCase c{kind, gated, false, 5, 61, 0};
      const Values x = rounded<T>(c.x()), want = reference::activation(kind, gated, 5, 61, x),
                   got = c.run<OnDevice, T>()[0].values;
      for (std::size_t i = 0; i < got.size();
           ++i) {  // relative to the input: x times a probability
        const double in =
            gated ? std::abs(x[i / 61 * 122 + i % 61] * x[(i / 61 * 2 + 1) * 61 + i % 61])
                  : std::abs(x[i]);
        ASSERT_NEAR(got[i], want[i], rounding<T>(0.5 * in + 1e-6)) << "kind " << int(kind);
      }
    }
}

// The gradient and its column sums, in one call or in two.
struct ActivationSumCase {
  Activation kind;
  std::int64_t rows, cols;
  bool accumulate_sum = false;
  int first = 0;

  template <class D, class T>
  Results run(bool apart) const {
    const std::int64_t n = rows * cols;
    typename D::template Array<T> x("x", rounded<T>(random_values(n + first, 5, 6))),
        dy("dy", rounded<T>(random_values(n, 7))), dx("dx", n);
    typename D::template Array<Accum<T>> sum("sum", cols);
    sum.assign(random_values(cols, 9));
    const kernels::ActivationBackwardArgs<T> a{rows, cols, kind, false, x + first, dy, dx};
    if (apart) {
      kernels::activation_backward(D::stream(), a);
      kernels::column_sum(D::stream(),
                          kernels::ColumnSumArgs<T>{rows, cols, cols, dx, sum, accumulate_sum});
    } else {
      kernels::activation_backward_sum(
          D::stream(), kernels::ActivationBackwardSumArgs<T>{a, sum, accumulate_sum});
    }
    return {{"dx", dx.values(), rounding<T>(4)},
            {"sum", sum.values(), rounding<T>(4 * std::sqrt(1.0 + rows))}};
  }
};

template <class T>
void expect_sums_on_the_way(const ActivationSumCase& c) {
  SCOPED_TRACE(testing::Message() << "kind " << int(c.kind) << " rows " << c.rows << " cols "
                                  << c.cols);
  const Results together = expect_as_cpu([&]<class D>() { return c.run<D, T>(false); }),
                apart = c.run<OnDevice, T>(true);
  for (std::size_t i = 0; i < apart.size(); ++i)
    EXPECT_TRUE(same_values(together[i].values, apart[i].values)) << apart[i].name;
}

TYPED_TEST(DevicePointwise, ActivationGradientsAreSummedOnTheWayWithTheSameBits) {
  for (Activation kind : kKinds)
    for (const ActivationSumCase& c : {ActivationSumCase{kind, 1, 1},
                                       {kind, 0, 9, true},
                                       {kind, 83, 13, true},
                                       {kind, 131, 264},
                                       {kind, 67, 24, true, 1}})
      expect_sums_on_the_way<TypeParam>(c);
}

TYPED_TEST(DevicePointwise, DISABLED_ActivationSumsAtRealShapes) {
  for (const ActivationSumCase& c : {ActivationSumCase{Activation::gelu, 4096, 768},
                                     {Activation::relu, 1024, 3072, true},
                                     {Activation::silu, 300, 14336}})
    expect_sums_on_the_way<TypeParam>(c);
}

TEST(DeviceActivation, NotANumberStaysOne) {
  for (Activation kind : kKinds) {
    Buffer<float> x("x", Values{1, std::nan(""), -1}), y("y", 3);
    kernels::activation(device_stream(), kernels::ActivationArgs<float>{1, 3, kind, false, x, y});
    EXPECT_TRUE(std::isfinite(y[0]) && std::isnan(y[1]) && std::isfinite(y[2])) << int(kind);
  }
}

struct DropoutCase {
  std::int64_t rows, cols;
  float p;
  bool residual, accumulate;
  kernels::DropoutPlace place;
  int first = 0;

  template <class D, class T>
  Results run() const {
    const std::int64_t n = rows * cols + first;
    typename D::template Array<T> x("x", rounded<T>(random_values(n, 1))),
        r("residual", rounded<T>(random_values(n, 2))), y("y", n);
    y.assign(Values(n, 0.5));
    kernels::dropout_add(D::stream(),
                         kernels::DropoutAddArgs<T>{.rows = rows,
                                                    .cols = cols,
                                                    .x = x + first,
                                                    .residual = residual ? r + first : nullptr,
                                                    .y = y + first,
                                                    .accumulate = accumulate,
                                                    .dropout = {p, {11, Purpose::dropout, 3, 5}},
                                                    .place = place});
    return {{"y", y.values(), residual || accumulate ? rounding<T>(4) : 0}};
  }
};

TYPED_TEST(DevicePointwise, DropsWhatTheCpuDrops) {
  using T = TypeParam;
  for (float p : {0.0f, 0.1f, 0.9f})
    for (bool residual : {false, true})
      for (const DropoutCase& c : {DropoutCase{1, 1, p, residual, false, {0, 0, 1}},
                                   {5, 37, p, residual, true, {7, 0, 37}},
                                   {3, 64, p, residual, false, {2, 64, 200}},
                                   {4, 21, p, residual, false, {0, 3, 90}, 5},
                                   {9, 37, p, residual, false, {2, 0, 37, 24, 3, 6, {3, 18}}}}) {
        SCOPED_TRACE(testing::Message() << "p " << p << " cols " << c.cols);
        expect_as_cpu([&]<class D>() { return c.run<D, T>(); });
      }
}

TYPED_TEST(DevicePointwise, SinksOfAttentionAsTheCpus) {
  using T = TypeParam;
  constexpr std::int64_t batch = 2, heads = 3, queries = 7;
  for (const std::int64_t size : {5, 16})
    expect_as_cpu([&]<class D>() {
      const std::int64_t stride = heads * size + 3, n = batch * queries * stride;
      Values sums = random_values(batch * heads * queries, 3);
      sums[4] = -INFINITY;
      typename D::template Array<T> sinks("sinks", rounded<T>(random_values(heads, 1))),
          dout("dout", rounded<T>(random_values(n, 4))), out("out", n);
      typename D::template Array<Accum<T>> lse("lse", batch * heads * queries),
          dsinks("dsinks", heads);
      out.assign(rounded<T>(random_values(n, 2)));
      lse.assign(sums), dsinks.assign(Values(heads, 0.5));
      const kernels::AttentionSinksArgs<T> a{batch, heads, queries, size, sinks, out, stride, lse};
      kernels::attention_sinks(D::stream(), a);
      kernels::attention_sinks_backward(
          D::stream(), kernels::AttentionSinksBackwardArgs<T>{a, dout, dsinks, size == 5});
      return Results{{"out", out.values(), rounding<T>(4)},
                     {"lse", lse.values(), rounding<Accum<T>>(8)},
                     {"dsinks", dsinks.values(), rounding<T>(8)}};
    });
}

TEST(DeviceDropout, FollowsTheDefinition) {
  const DropoutCase c{3, 22, 0.3f, false, false, {2, 5, 50}};
  const Values got = c.run<OnDevice, double>()[0].values, x = rounded<double>(random_values(66, 1));
  for (std::int64_t i = 0; i < 66; ++i)
    EXPECT_NEAR(got[i],
                x[i] * reference::dropout_factor(0.3f, {11, Purpose::dropout, 3, 5},
                                                 (2 + i / 22) * 52 + 5 + i % 22),
                1e-7);
}

TYPED_TEST(DevicePointwise, JittersAsTheCpu) {
  using T = TypeParam;
  for (const std::int64_t offset : {0, 3})
    expect_as_cpu([&]<class D>() {
      typename D::template Array<T> x("x", rounded<T>(random_values(5 * 37, 1))), y("y", 5 * 37);
      kernels::dropout_add(
          D::stream(),
          kernels::DropoutAddArgs<T>{.rows = 5,
                                     .cols = 37,
                                     .x = x,
                                     .y = y,
                                     .dropout = {0, {11, Purpose::dropout, 3, 5}, nullptr, 0.25f},
                                     .place = {2, offset, 50}});
      return Results{{"y", y.values(), 0}};
    });
}

TEST(DeviceDropout, KeepsAWordThatIsTheThreshold) {
  const RandomKey key{11, Purpose::dropout, 3, 5};
  std::uint64_t element = 0;
  while (key.word(element) % 256 != 0) ++element;  // 24 bits: a probability
  ASSERT_LT(element, 4096u);
  const DropoutCase c{1,     4096,  static_cast<float>(key.word(element) * 0x1p-32),
                      false, false, {0, 0, 4096}};
  EXPECT_NE(expect_as_cpu([&]<class D>() { return c.run<D, float>(); })[0].values[element], 0);
}

TEST(DeviceDropout, MayWriteOverItsInput) {
  const Values x = random_values(200, 1);
  Buffer<float> a("a", 200), b("b", x), y("y", 200);
  a.assign(x);
  const kernels::Dropout dropout{0.5f, {1, Purpose::dropout, 2, 3}};
  kernels::dropout_add(device_stream(), kernels::DropoutAddArgs<float>{.rows = 10,
                                                                       .cols = 20,
                                                                       .x = a,
                                                                       .residual = a,
                                                                       .y = a,
                                                                       .dropout = dropout,
                                                                       .place = {0, 0, 20}});
  kernels::dropout_add(device_stream(), kernels::DropoutAddArgs<float>{.rows = 10,
                                                                       .cols = 20,
                                                                       .x = b,
                                                                       .residual = b,
                                                                       .y = y,
                                                                       .dropout = dropout,
                                                                       .place = {0, 0, 20}});
  EXPECT_EQ(a.raw(), y.raw());
}

struct ColumnSumCase {
  std::int64_t rows, cols;
  bool accumulate;
  int first = 0, beyond = 0;  // columns between rows

  template <class D, class T>
  Results run() const {
    typename D::template Array<T> x("x",
                                    rounded<T>(random_values(rows * (cols + beyond) + first, 1)));
    typename D::template Array<Accum<T>> y("y", cols);
    y.assign(Values(cols, 0.5));
    kernels::column_sum(D::stream(), kernels::ColumnSumArgs<T>{rows, cols, cols + beyond, x + first,
                                                               y, accumulate});
    return {{"y", y.values(), rounding<Accum<T>>(2 * std::sqrt(1.0 + rows))}};
  }
};

TYPED_TEST(DevicePointwise, DISABLED_DropoutAtRealShapes) {
  for (const DropoutCase& c : {DropoutCase{1024, 768, 0.1f, true, false, {0, 0, 768}},
                               {256, 4096, 0.1f, false, true, {3, 0, 4096}}})
    expect_as_cpu([&]<class D>() { return c.run<D, TypeParam>(); });
}

TYPED_TEST(DevicePointwise, DISABLED_ColumnSumsAtRealShapes) {
  for (const ColumnSumCase& c :
       {ColumnSumCase{4096, 768, true}, {1024, 3072, false}, {300, 14336, true}})
    expect_as_cpu([&]<class D>() { return c.run<D, TypeParam>(); });
}

TYPED_TEST(DevicePointwise, ColumnSumsAsTheCpus) {
  using T = TypeParam;
  for (const ColumnSumCase& c : {ColumnSumCase{1, 1, false},
                                 {0, 9, true},
                                 {300, 5, true},
                                 {131, 300, false, 1},
                                 {70, 520, true},
                                 {70, 13, true, 0, 3}})
    expect_as_cpu([&]<class D>() { return c.run<D, T>(); });
}
TEST(DeviceColumnSum, NeedsItsBarriers) {
  expect_needs_barriers([&]<class D>() { return ColumnSumCase{100, 40, false}.run<D, float>(); });
}

}  // namespace
}  // namespace tfm::test
