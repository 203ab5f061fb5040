// Rows with a label, packed and put back, on the emulator.
#include "kernel_runs.h"
#include "kernels/packed_rows.h"

namespace tfm::test {
namespace {

template <class T>
class DevicePackedRows : public testing::Test {};
TYPED_TEST_SUITE(DevicePackedRows, Floats);

// Every `every`-th row has a label, 10 r.
struct PackCase {
  std::int64_t rows, every, packed, cols;
  bool accumulate;

  template <class D, class T>
  Results run() const {
    Values given(rows, -100);
    for (std::int64_t r = every - 1; r < rows; r += every) given[r] = 10.0 * static_cast<double>(r);
    typename D::template Array<std::int32_t> labels("labels", given), places("places", packed),
        own("packed labels", packed);
    typename D::template Array<T> x("x", rounded<T>(random_values(packed * cols, 1))),
        y("y", rows * cols);
    y.assign(Values(rows * cols, 3));
    auto& s = D::stream();
    kernels::pack_rows(s, kernels::PackRowsArgs{rows, labels, packed, places, own});
    kernels::scatter_rows(s, kernels::ScatterRowsArgs<T>{packed, cols, places, x, y, accumulate});
    return {{"places", places.values(), 0},
            {"labels", own.values(), 0},
            {"y", y.values(), rounding<T>(4)}};
  }
};

TYPED_TEST(DevicePackedRows, AsTheCpus) {
  for (const PackCase& c : {PackCase{1, 1, 1, 1, false},
                            {40, 7, 16, 24, false},
                            {3000, 6, 512, 3, true},
                            {2500, 1, 2500, 8, false},
                            {50, 60, 16, 5, true}}) {
    SCOPED_TRACE(c.rows);
    const Results r = expect_as_cpu([&]<class D>() { return c.run<D, TypeParam>(); });
    for (std::int64_t i = 0; i < c.packed; ++i) {
      const std::int64_t row = (i + 1) * c.every - 1;
      EXPECT_EQ(r[0].values[i], row < c.rows ? row : -1);
      EXPECT_EQ(r[1].values[i], row < c.rows ? 10 * row : -1);
    }
  }
}
TYPED_TEST(DevicePackedRows, DISABLED_AtRealShapes) {
  const PackCase c{65536, 64, 12288, 7, false};
  expect_as_cpu([&]<class D>() { return c.run<D, TypeParam>(); });
}
TEST(DevicePackedRowsCases, NeedTheirBarrier) {
  expect_needs_barriers([&]<class D>() { return PackCase{3000, 6, 512, 3, true}.run<D, float>(); });
}
TEST(PackedRows, AreSixteenthsOrAll) {
  EXPECT_EQ(kernels::packed_rows(65536, 9830), 12288);
  EXPECT_EQ(kernels::packed_rows(65536, 0), 4096);
  EXPECT_EQ(kernels::packed_rows(65536, 57344), 57344);
  EXPECT_EQ(kernels::packed_rows(65536, 57345), 65536);
  EXPECT_EQ(kernels::packed_rows(4, 1), 4);
}

}  // namespace
}  // namespace tfm::test
