// Token and position tables and rotary embedding on the emulator.
#include "kernel_runs.h"
#include "kernels/embedding.h"

namespace tfm::test {
namespace {

template <class T>
class DeviceTables : public testing::Test {};
TYPED_TEST_SUITE(DeviceTables, Floats);

struct TableCase {
  std::int64_t rows, cols, vocab_begin, vocab_end, table_rows, padding_idx;
  double scale;
  bool accumulate;
  std::int64_t distinct;  // of ids
  int first = 0;

  template <class D, class T>
  Results run() const {
    using W = Accum<T>;
    Values ids(rows);
    const RandomKey key{5, Purpose::data, 0, 0};
    for (std::int64_t r = 0; r < rows; ++r)
      ids[r] = static_cast<double>(key.word(static_cast<std::uint64_t>(r)) %
                                   static_cast<std::uint64_t>(distinct)) -
               2;
    typename D::template Array<std::int32_t> id("ids", ids);
    typename D::template Array<T> table("table",
                                        rounded<T>(random_values(table_rows * cols + first, 1))),
        dy("dy", rounded<T>(random_values(rows * cols + first, 2))), y("y", rows * cols + first);
    typename D::template Array<W> dtable("dtable", table_rows * cols + first);
    y.assign(Values(rows * cols + first, 3)), dtable.assign(Values(table_rows * cols + first, 0.5));
    kernels::embedding(D::stream(),
                       kernels::EmbeddingArgs<T>{rows, cols, id, table + first, vocab_begin,
                                                 vocab_end, static_cast<W>(scale), y + first});
    kernels::embedding_backward(
        D::stream(), kernels::EmbeddingBackwardArgs<T>{rows, cols, id, dy + first, vocab_begin,
                                                       vocab_end, table_rows, static_cast<W>(scale),
                                                       padding_idx, dtable + first, accumulate});
    const bool in_order =
        rows <= 64 &&
        !accumulate;  // longer runs are added in parts, which are then added to what is there
    const double terms = static_cast<double>(rows) / static_cast<double>(distinct),
                 sums = rounding<W>(std::max(20.0, 3 * std::sqrt(terms)));
    return {{"y", y.values(), 0}, {"dtable", dtable.values(), in_order ? 0 : sums}};
  }
};

TYPED_TEST(DeviceTables, EmbeddingsAsTheCpus) {
  using T = TypeParam;
  for (const TableCase& c : {TableCase{1, 1, 0, 4, 4, -1, 1, false, 5},
                             {40, 24, 3, 11, 13, 5, 0.5, true, 15},
                             {700, 9, 0, 6, 8, -1, 1, false, 9},
                             {300, 2100, 0, 2, 2, 0, 1.5, true, 4},
                             {33, 40, 0, 50, 50, -1, 2, false, 52, 1},
                             {4200, 8, 0, 2, 2, -1, 1, true, 4},
                             {2500, 3, 0, 2000, 2000, 7, 1, false, 2002},
                             {2049, 8, 0, 1, 1, -1, 1, false, 3}}) {
    SCOPED_TRACE(testing::Message() << c.rows << " x " << c.cols);
    expect_as_cpu([&]<class D>() { return c.run<D, T>(); });
  }
}
TYPED_TEST(DeviceTables, DISABLED_AtRealShapes) {
  for (const TableCase& c : {TableCase{4096, 64, 0, 50257, 50257, -1, 1, false, 50257},
                             {4096, 768, 1000, 2000, 1000, -1, 0.5, true, 3000},
                             {4200, 768, 0, 2, 2, -1, 1, false, 4}}) {
    SCOPED_TRACE(testing::Message() << c.rows << " x " << c.cols);
    expect_as_cpu([&]<class D>() { return c.run<D, TypeParam>(); });
  }
}
TEST(DeviceTablesCases, NeedTheirBarriers) {
  expect_needs_barriers(
      [&]<class D>() { return TableCase{4200, 8, 0, 20, 20, -1, 1, false, 25}.run<D, float>(); });
}

struct PositionCase {
  std::int64_t rows, cols, row_offset, length, first, table_rows;
  bool accumulate;

  template <class D, class T>
  Results run() const {
    typename D::template Array<T> x("x", rounded<T>(random_values(rows * cols, 1))),
        table("table", rounded<T>(random_values(table_rows * cols, 2))),
        dy("dy", rounded<T>(random_values(rows * cols, 3))), y("y", rows * cols);
    typename D::template Array<Accum<T>> dtable("dtable", table_rows * cols);
    dtable.assign(Values(table_rows * cols, 0.5));
    kernels::add_position(
        D::stream(), kernels::PositionArgs<T>{rows, cols, row_offset, length, first, x, table, y});
    kernels::add_position_backward(
        D::stream(), kernels::PositionBackwardArgs<T>{rows, cols, row_offset, length, first,
                                                      table_rows, dy, dtable, accumulate});
    return {{"y", y.values(), 0}, {"dtable", dtable.values(), rounding<Accum<T>>(8)}};
  }
};
TYPED_TEST(DeviceTables, PositionsAsTheCpus) {
  for (const PositionCase& c : {PositionCase{1, 1, 0, 1, 0, 1, false},
                                {20, 13, 6, 7, 2, 12, true},
                                {24, 40, 3, 8, 0, 8, false},
                                {3, 300, 9, 5, 1, 6, true}})
    expect_as_cpu([&]<class D>() { return c.run<D, TypeParam>(); });
}

struct RotaryCase {
  std::int64_t rows, cols, heads, size, row_offset, length, position_offset;
  bool inverse, accumulate, in_place;
  std::int64_t kept = 0;  // columns of a head that do not turn
  double factor = 1;

  template <class D, class T>
  Results run() const {
    Values frequencies((size - kept) / 2);
    for (std::size_t i = 0; i < frequencies.size(); ++i)
      frequencies[i] = std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(size));
    typename D::template Array<double> frequency("frequency", frequencies);
    const Values values = rounded<T>(random_values(rows * cols, 1));
    typename D::template Array<T> x("x", values), y("y", rows * cols);
    y.assign(in_place ? values : Values(rows * cols, 0.5));
    kernels::rotary(D::stream(),
                    kernels::RotaryArgs<T>{rows, cols, heads, size, size - kept, row_offset, length,
                                           position_offset, frequency, factor,
                                           in_place ? static_cast<const T*>(static_cast<T*>(y))
                                                    : static_cast<const T*>(static_cast<T*>(x)),
                                           y, inverse, accumulate});
    return {{"y", y.values(), rounding<T>(2)}};
  }
};
TYPED_TEST(DeviceTables, RotatesAsTheCpu) {
  for (const RotaryCase& c : {RotaryCase{1, 2, 1, 2, 0, 1, 0, false, false, false},
                              {9, 40, 2, 16, 5, 4, 1000, false, false, true},
                              {7, 50, 3, 10, 0, 64, 7, true, true, false},
                              {5, 192, 2, 64, 3, 5, 100000, true, false, false},
                              {3, 21, 0, 4, 0, 9, 0, false, true, false},
                              {9, 51, 2, 20, 5, 4, 1000, false, false, true, 14, 1.25},
                              {7, 80, 3, 25, 0, 64, 7, true, true, false, 1, 1.5},
                              {5, 192, 2, 64, 3, 5, 100000, true, false, false, 32}})
    expect_as_cpu([&]<class D>() { return c.run<D, TypeParam>(); });
}
TYPED_TEST(DeviceTables, DISABLED_RotatesAtRealShapes) {
  for (const RotaryCase& c : {RotaryCase{1024, 6144, 32, 128, 0, 512, 0, false, false, true},
                              {1024, 3072, 32, 64, 0, 1024, 7168, true, false, false}})
    expect_as_cpu([&]<class D>() { return c.run<D, TypeParam>(); });
}
TEST(DeviceRotary, TurnsBack) {
  Values frequencies(8, 0.37);
  const Values x = random_values(8 * 32, 1);
  Buffer<double> frequency("frequency", frequencies), in("x", x), y("y", 8 * 32);
  for (bool inverse : {false, true})
    kernels::rotary(device_stream(),
                    kernels::RotaryArgs<double>{
                        8, 32, 2, 16, 16, 3, 8, 50, frequency, 1,
                        inverse ? static_cast<double*>(y) : static_cast<double*>(in), y, inverse});
  expect_close(y.values(), x, 1e-14, "x");
}

}  // namespace
}  // namespace tfm::test
