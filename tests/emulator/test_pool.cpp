// Summaries of sequences on the emulator.
#include "kernel_runs.h"
#include "kernels/pool.h"

namespace tfm::test {
namespace {

template <class T>
class DevicePool : public testing::Test {};
TYPED_TEST_SUITE(DevicePool, Floats);

// Sequence b has b % (length + 1) real rows.
struct PoolCase {
  kernels::Pool kind;
  Rows rows;
  std::int64_t cols;
  bool padded, accumulate;

  template <class D, class T>
  Results run() const {
    const std::int64_t length = rows.sequence_length, all = rows.tokens() * cols,
                       summaries = rows.sequences * cols;
    Values real(rows.sequences * length, -1);
    for (std::int64_t b = 0; b < rows.sequences; ++b)
      std::fill_n(real.begin() + b * length, b % (length + 1), 0);
    typename D::template Array<std::int32_t> mask("mask", real);
    typename D::template Array<T> x("x", rounded<T>(random_values(all, 1))),
        dy("dy", rounded<T>(random_values(summaries, 2))), y("y", summaries), dx("dx", all);
    if (accumulate) dx.assign(rounded<T>(random_values(all, 3)));
    const std::int32_t* given = padded ? static_cast<std::int32_t*>(mask) : nullptr;
    auto& s = D::stream();
    kernels::pool(s, kernels::PoolArgs<T>{kind, rows, cols, given, x, y});
    kernels::pool_backward(
        s, kernels::PoolBackwardArgs<T>{kind, rows, cols, given, dy, dx, accumulate});
    return {{"y", y.values(), 0}, {"dx", dx.values(), rounding<T>(2)}};
  }
};

TYPED_TEST(DevicePool, AsTheCpus) {
  using enum kernels::Pool;
  for (const PoolCase& c : {PoolCase{mean, {1, 1}, 1, false, false},
                            {mean, {5, 3}, 24, true, false},
                            {mean, {4, 8, {2, 1}}, 13, true, true},
                            {first, {3, 4}, 2100, true, true},
                            {last, {3, 4}, 2100, false, true},
                            {last, {6, 4, {2, 0}}, 40, true, false}}) {
    SCOPED_TRACE(testing::Message() << c.rows.sequences << " x " << c.cols);
    expect_as_cpu([&]<class D>() { return c.run<D, TypeParam>(); });
  }
}
TYPED_TEST(DevicePool, DISABLED_AtRealShapes) {
  const PoolCase c{kernels::Pool::mean, {32, 512}, 768, true, true};
  expect_as_cpu([&]<class D>() { return c.run<D, TypeParam>(); });
}

}  // namespace
}  // namespace tfm::test
