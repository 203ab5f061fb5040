// LayerNorm and RMSNorm on the emulator.
#include "kernel_runs.h"
#include "kernels/norm.h"
#include "kernels/width_norm.h"

namespace tfm::test {
namespace {

template <class T>
class DeviceNorms : public testing::Test {};
TYPED_TEST_SUITE(DeviceNorms, Floats);

struct NormCase {
  std::int64_t rows, cols;
  bool rms = false, shift = true, accumulate = false, dx = true;
  int first = 0;  // element of its memory that each array starts with
  kernels::RowPlaces places = {};
  float offset = 0;  // of the gain
  bool eps_outside = false;
  double eps() const { return eps_outside ? 0.25 : 1e-5; }

  template <class D, class T>
  Results run() const {
    using W = Accum<T>;
    using namespace kernels;
    const auto n = places.heads > 0 ? rows / places.heads * places.stride : rows * cols;
    auto padded = [&](Values v) {
      v.insert(v.begin(), first, 9.0);
      return rounded<T>(v);
    };
    typename D::template Array<T> x("x", padded(random_values(n, 1, 2))),
        gain("gain", padded(random_values(cols, 2))), bias("bias", padded(random_values(cols, 3))),
        dy("dy", padded(random_values(n, 4))), y("y", n + first), dxs("dx", n + first);
    typename D::template Array<W> mean("mean", rows), rstd("rstd", rows), dgain("dgain", cols),
        dshift("dshift", cols);
    dxs.assign(Values(n + first, 0.5)), dgain.assign(Values(cols, 0.5)),
        dshift.assign(Values(cols, 0.5));
    y.assign(Values(n + first, 3));
    auto& s = D::stream();
    norm(s, NormArgs<T>{rows, cols, x + first, gain + first, shift ? bias + first : nullptr,
                        y + first, rms ? nullptr : static_cast<W*>(mean), rstd, eps(), rms, places,
                        offset, eps_outside});
    if (rms) mean.assign(Values(rows, 0));
    norm_backward(s, NormBackwardArgs<T>{rows, cols, dy + first, x + first, gain + first, mean,
                                         rstd, dx ? dxs + first : nullptr, accumulate, dgain,
                                         accumulate, shift ? static_cast<W*>(dshift) : nullptr,
                                         accumulate, rms, places, offset, eps(), eps_outside});
    const double amplify = cols == 1 ? 400 : 1, sums = std::sqrt(static_cast<double>(rows));
    return {{"y", y.values(), rounding<T>(4 * amplify)},
            {"mean", mean.values(), rounding<W>(2)},
            {"rstd", rstd.values(), rounding<W>(4 * amplify * amplify)},
            {"dx", dxs.values(), rounding<T>(8 * amplify)},
            {"dgain", dgain.values(), rounding<W>(8 * sums)},
            {"dshift", dshift.values(), rounding<W>(8 * sums)}};
  }
};

TYPED_TEST(DeviceNorms, AsTheCpus) {
  using T = TypeParam;
  for (const NormCase& c : {NormCase{1, 1},
                            {3, 7},
                            {19, 65, true},
                            {130, 33},
                            {9, 256, false, false},
                            {17, 768, false, true, true},
                            {3, 1601, true, false, true},
                            {2, 2048},
                            {10, 3072},
                            {2, 5003},
                            {9, 6000, true},
                            {7, 65, false, true, false, true, 0, {}, 0, true},
                            {3, 1601, true, false, true, true, 0, {}, 1, true},
                            {18, 8200, true},
                            {5, 40, false, true, false, false},
                            {9, 72, false, true, true, true, 3},
                            {12, 8, true, false, true, true, 0, {3, 40}},
                            {12, 10, false, true, false, true, 0, {3, 37}},
                            {10, 128, true, false, false, true, 0, {5, 643}},
                            {10, 128, true, false, true, true, 0, {5, 648}},
                            {17, 768, true, false, false, true, 0, {}, 1},
                            {3, 1601, true, false, true, true, 0, {}, 1},
                            {9, 8200, false, true, false, true, 0, {}, 1},
                            {10, 128, true, false, false, true, 0, {5, 648}, 1}}) {
    SCOPED_TRACE(testing::Message() << c.rows << " x " << c.cols);
    expect_as_cpu([&]<class D>() { return c.run<D, T>(); });
  }
}

// Columns that ranks share out, `width` in all, behind others in rows of `stride` elements.
struct WidthNormCase {
  std::int64_t rows, cols, width, stride;
  bool accumulate = false, dx = true;
  int first = 0;  // column

  template <class D, class T>
  Results run() const {
    using W = Accum<T>;
    using namespace kernels;
    const std::int64_t n = rows * stride;
    typename D::template Array<T> x("x", rounded<T>(random_values(n, 1, 2))),
        gain("gain", rounded<T>(random_values(cols, 2))), dy("dy", rounded<T>(random_values(n, 4))),
        y("y", n), dxs("dx", n);
    typename D::template Array<W> squares("squares", rows), products("products", rows),
        dgain("dgain", cols);
    y.assign(Values(n, 3)), dxs.assign(Values(n, 0.5)), dgain.assign(Values(cols, 0.5));
    const SharedRows of{rows, cols, stride};
    auto& s = D::stream();
    row_sums(s, RowSumsArgs<T>{of, x + first, nullptr, nullptr, squares});
    row_sums(s, RowSumsArgs<T>{of, x + first, dy + first, gain, products});
    const WidthNormArgs<T> forward{of, width, 1e-5, squares, x + first, gain, y + first};
    width_norm(s, forward);
    width_norm_backward(
        s, WidthNormBackwardArgs<T>{forward, products, dy + first, dx ? dxs + first : nullptr,
                                    accumulate, dgain, accumulate});
    const double sums = std::sqrt(static_cast<double>(std::max(rows, cols)));
    return {{"squares", squares.values(), rounding<W>(16 * sums)},
            {"products", products.values(), rounding<W>(16 * sums)},
            {"y", y.values(), rounding<T>(8)},
            {"dx", dxs.values(), rounding<T>(16)},
            {"dgain", dgain.values(), rounding<W>(16 * sums)}};
  }
};

TYPED_TEST(DeviceNorms, OverSharedColumnsAsTheCpus) {
  for (const WidthNormCase& c : {WidthNormCase{1, 1, 1, 1},
                                 {3, 7, 14, 7},
                                 {19, 65, 65, 80, true},
                                 {130, 32, 64, 96, false, true, 32},
                                 {40, 300, 600, 310, true, true, 5},
                                 {9, 72, 72, 72, false, false}}) {
    SCOPED_TRACE(testing::Message() << c.rows << " x " << c.cols);
    expect_as_cpu([&]<class D>() { return c.run<D, TypeParam>(); });
  }
  expect_needs_barriers([&]<class D>() {
    return WidthNormCase{130, 32, 64, 96}.run<D, TypeParam>();
  });
}

TYPED_TEST(DeviceNorms, DISABLED_AtRealShapes) {
  for (const NormCase& c : {NormCase{1000, 768},
                            {2200, 8},
                            {500, 1600, false, true, true},
                            {256, 4096, true, false},
                            {128, 8192, true, false, true},
                            {64, 12288},
                            {512, 128, true, false, false, true, 0, {8, 1280}}}) {
    SCOPED_TRACE(testing::Message() << c.rows << " x " << c.cols);
    expect_as_cpu([&]<class D>() { return c.run<D, TypeParam>(); });
  }
}

// A residual and its norm: the sum has the bits of dropout_add, the norm those of norm on the same
// device.
struct AddNormCase {
  std::int64_t rows, cols;
  float p = 0;
  bool residual = true, rms = false;
  int first = 0;  // element of its memory that each array starts with
  kernels::RowPlaces places = {};

  template <class D, class T>
  Results run(bool joined) const {
    using namespace kernels;
    using W = Accum<T>;
    const auto n = rows * cols + first;
    typename D::template Array<T> x("x", rounded<T>(random_values(n, 1))),
        r("residual", rounded<T>(random_values(n, 2))), sum("sum", n), y("y", n),
        gain("gain", rounded<T>(random_values(cols, 3)));
    typename D::template Array<W> mean("mean", rows), rstd("rstd", rows);
    sum.assign(Values(n, 0)), y.assign(Values(n, 0)), mean.assign(Values(rows, 0));
    const AddNormArgs<T> a{
        {.rows = rows,
         .cols = cols,
         .x = x + first,
         .residual = residual ? r + first : nullptr,
         .y = sum + first,
         .dropout = {p, {7, Purpose::dropout, 3, 2}},
         .place = {5, 0, cols, 4}},
        {rows, cols, sum + first, gain, nullptr, y + first, mean, rstd, 1e-5, rms}};
    auto& s = D::stream();
    if (joined) {
      add_norm(s, a);
    } else {
      dropout_add(s, a.add);
      norm(s, a.norm);
    }
    const double amplify = cols == 1 ? 400 : 1;
    const double sums = rounding<T>(0.01);  // of elements that are rounded another way
    return {{"sum", sum.values(), rounding<T>(4)},
            {"y", y.values(), rounding<T>(4 * amplify)},
            {"mean", mean.values(), rounding<W>(2) + sums},
            {"rstd", rstd.values(), rounding<W>(4 * amplify * amplify) + sums}};
  }
};

TYPED_TEST(DeviceNorms, OfAResidualMadeOnTheWay) {
  using T = TypeParam;
  for (const AddNormCase& c : {AddNormCase{1, 1},
                               {9, 33, 0.3f},
                               {3, 256, 0, true, true},
                               {18, 768, 0.1f},
                               {5, 1601, 0.5f, false},
                               {2, 2048},
                               {2, 5003, 0.2f},
                               {2, 3072, 0.1f},
                               {2, 6000},
                               {2, 8200, 0.2f},
                               {7, 72, 0.2f, true, false, 3},
                               {0, 12}}) {
    SCOPED_TRACE(testing::Message() << c.rows << " x " << c.cols << " p " << c.p);
    expect_as_cpu([&]<class D>() { return c.run<D, T>(true); });
    const Results apart = c.run<OnDevice, T>(false), joined = c.run<OnDevice, T>(true);
    for (std::size_t i = 0; i < apart.size(); ++i)
      EXPECT_TRUE(same_values(apart[i].values, joined[i].values)) << apart[i].name;
  }
}

TYPED_TEST(DeviceNorms, DISABLED_OfAResidualAtRealShapes) {
  for (const AddNormCase& c : {AddNormCase{1000, 768, 0.1f},
                               {500, 1600},
                               {256, 4096, 0, true, true},
                               {64, 12288, 0.1f, true, true}}) {
    SCOPED_TRACE(testing::Message() << c.rows << " x " << c.cols);
    expect_as_cpu([&]<class D>() { return c.run<D, TypeParam>(true); });
  }
}

TYPED_TEST(DeviceNorms, MatchTheDefinition) {
  using T = TypeParam;
  for (bool rms : {false, true}) {
    const NormCase c{5, 300, rms};
    const auto got = c.run<OnDevice, T>();
    const Values want = reference::norm(5, 300, rounded<T>(random_values(1500, 1, 2)),
                                        rounded<T>(random_values(300, 2)),
                                        rounded<T>(random_values(300, 3)), 1e-5, rms);
    expect_close(got[0].values, want, rounding<T>(4), "y");
  }
}

TEST(DeviceNormCases, NoRowsGiveNoGradient) {
  const NormCase c{0, 12};
  expect_as_cpu([&]<class D>() { return c.run<D, float>(); });
}

TEST(DeviceNormCases, NeedsItsBarriers) {
  for (const NormCase& c : {NormCase{9, 2000}, {3, 9000}})
    expect_needs_barriers([&]<class D>() { return c.run<D, float>(); });
}

}  // namespace
}  // namespace tfm::test
