// LayerNorm and RMSNorm on the executor.
#include "kernel_runs.h"
#include "kernels/norm.h"

namespace tfm::test {
namespace {

template <class T> class DeviceNorms : public testing::Test {};
TYPED_TEST_SUITE(DeviceNorms, Floats);

struct NormCase {
  std::int64_t rows, cols;
  bool rms = false, shift = true, accumulate = false, dx = true;
  int first = 0;  // element of its memory that each array starts with

  template <class D, class T> Results run() const {
    using W = Wide<T>;
    using namespace kernels;
    const auto n = rows * cols;
    auto padded = [&](Values v) {
      v.insert(v.begin(), first, 9.0);
      return rounded<T>(v);
    };
    typename D::template Array<T> x("x", padded(random_values(n, 1, 2))), gain("gain", padded(random_values(cols, 2))),
        bias("bias", padded(random_values(cols, 3))), dy("dy", padded(random_values(n, 4))), y("y", n + first), dxs("dx", n + first);
    typename D::template Array<W> mean("mean", rows), rstd("rstd", rows), dgain("dgain", cols), dshift("dshift", cols);
    dxs.assign(Values(n + first, 0.5)), dgain.assign(Values(cols, 0.5)), dshift.assign(Values(cols, 0.5));
    y.assign(Values(n + first, 3));
    auto& s = D::stream();
    norm(s, NormArgs<T>{rows, cols, x + first, gain + first, shift ? bias + first : nullptr, y + first, rms ? nullptr : static_cast<W*>(mean), rstd, 1e-5, rms});
    if (rms) mean.assign(Values(rows, 0));
    norm_backward(s, NormBackwardArgs<T>{rows, cols, dy + first, x + first, gain + first, mean, rstd, dx ? dxs + first : nullptr, accumulate, dgain,
                                         accumulate, shift ? static_cast<W*>(dshift) : nullptr, accumulate, rms});
    const double amplify = cols == 1 ? 400 : 1, sums = std::sqrt(static_cast<double>(rows));
    return {{"y", y.values(), rounding<T>(4 * amplify)}, {"mean", mean.values(), rounding<W>(2)}, {"rstd", rstd.values(), rounding<W>(4 * amplify * amplify)},
            {"dx", dxs.values(), rounding<T>(8 * amplify)}, {"dgain", dgain.values(), rounding<W>(8 * sums)}, {"dshift", dshift.values(), rounding<W>(8 * sums)}};
  }
};

TYPED_TEST(DeviceNorms, AsTheCpus) {
  using T = TypeParam;
  for (const NormCase& c : {NormCase{1, 1}, {3, 7}, {19, 65, true}, {130, 33}, {9, 256, false, false}, {17, 768, false, true, true}, {3, 1601, true, false, true},
                            {2, 2048}, {2, 5003}, {18, 8200, true}, {5, 40, false, true, false, false}, {9, 72, false, true, true, true, 3}}) {
    SCOPED_TRACE(testing::Message() << c.rows << " x " << c.cols);
    expect_as_cpu([&]<class D>() { return c.run<D, T>(); });
  }
}

TYPED_TEST(DeviceNorms, MatchTheDefinition) {
  using T = TypeParam;
  for (bool rms : {false, true}) {
    const NormCase c{5, 300, rms};
    const auto got = c.run<OnDevice, T>();
    const Values want = reference::norm(5, 300, rounded<T>(random_values(1500, 1, 2)), rounded<T>(random_values(300, 2)), rounded<T>(random_values(300, 3)), 1e-5, rms);
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
