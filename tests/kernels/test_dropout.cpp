// Dropout masks: the documented rule, slices, rate; embeddings, positions, rotation.
#include "core/rows.h"
#include "kernels/dropout.h"
#include "kernels/embedding.h"
#include "support/kernel_case.h"

namespace tfm::test {
namespace {

using kernels::Dropout;
using kernels::DropoutAddArgs;
using kernels::DropoutPlace;
template <class T>
class Drop : public testing::Test {};
template <class T>
class Table : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Drop, Types);
TYPED_TEST_SUITE(Table, Types);

const RandomKey kKey{0x123456789ABCDEFull, Purpose::dropout, stream_of("block.0"), 17};

TYPED_TEST(Drop, FollowsTheRuleElementByElement) {
  using T = TypeParam;
  for (float p : {0.0f, 0.1f, 0.7f})
    for (bool residual : {false, true})
      for (bool accumulate : {false, true}) {
        const std::int64_t rows = 6, cols = 1037;
        const DropoutPlace place{(std::int64_t{1} << 33) + 5, 3,
                                 1050};  // the element index passes 2^32
        const Values x = random_values(rows * cols, 1), add = random_values(rows * cols, 2),
                     before = random_values(rows * cols, 3);
        Guarded<T> gx(x), gadd(add), gy(before);
        cpu::Stream s{2};
        kernels::dropout_add(s, DropoutAddArgs<T>{rows,
                                                  cols,
                                                  gx,
                                                  residual ? gadd.data() : nullptr,
                                                  gy,
                                                  accumulate,
                                                  {p, kKey},
                                                  place});
        Values want(rows * cols);
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t c = 0; c < cols; ++c) {
            const std::int64_t i = r * cols + c,
                               element = (place.row_offset + r) * 1052 + place.col_offset + c;
            want[i] = x[i] * reference::dropout_factor(p, kKey, element) + (residual ? add[i] : 0) +
                      (accumulate ? before[i] : 0);
          }
        expect_close(gy.values(), want, p > 0 ? 2e-6 : tolerance<T>(2),
                     "y");  // the scale is a float in both types
      }
}

// Two ranks share out sequences of four chunks: the first has the outer ones, the second the inner.
TYPED_TEST(Drop, SharesOfSequencesMakeTheWhole) {
  using T = TypeParam;
  const std::int64_t sequences = 2, length = 8, cols = 21;
  const Values ones(sequences * length * cols, 1);
  Guarded<T> x(ones), whole(std::ssize(ones));
  cpu::Stream s{1};
  const Dropout d{0.4f, kKey};
  kernels::dropout_add(
      s, DropoutAddArgs<T>{
             sequences * length, cols, x, nullptr, whole, false, d, {0, 0, cols, length}});
  for (const int rank : {0, 1}) {
    const Rows rows{sequences, length, {2, rank}};
    Guarded<T> part(rows.tokens() * cols);
    kernels::dropout_add(s, DropoutAddArgs<T>{rows.tokens(),
                                              cols,
                                              x,
                                              nullptr,
                                              part,
                                              false,
                                              d,
                                              {0,
                                               0,
                                               cols,
                                               length,
                                               rows.chunk_length(),
                                               rows.chunk_tokens(),
                                               {rows.start(0), rows.start(1)}}});
    const Values all = whole.values(), got = part.values();
    for (std::int64_t k = 0, i = 0; k < 2; ++k)
      for (std::int64_t b = 0; b < sequences; ++b)
        for (std::int64_t t = 0; t < 2; ++t, ++i) {
          const std::int64_t chunk = k == 0 ? rank : 3 - rank, row = b * length + 2 * chunk + t;
          for (std::int64_t c = 0; c < cols; ++c)
            EXPECT_EQ(got[i * cols + c], all[row * cols + c]) << "rank " << rank << ", row " << i;
        }
  }
}

TYPED_TEST(Drop, SlicesMakeTheWholeAndAliasesAreAllowed) {
  using T = TypeParam;
  const std::int64_t rows = 40, cols = 101;
  const Values x = random_values(rows * cols, 1), add = random_values(rows * cols, 2);
  cpu::Stream s{3};
  Guarded<T> gx(x), gadd(add), whole(rows * cols), in_x(x), in_residual(add);
  const Dropout d{0.3f, kKey};
  kernels::dropout_add(s, DropoutAddArgs<T>{rows, cols, gx, gadd, whole, false, d, {0, 0, cols}});
  kernels::dropout_add(s, DropoutAddArgs<T>{rows, cols, in_x, gadd, in_x, false, d, {0, 0, cols}});
  kernels::dropout_add(
      s, DropoutAddArgs<T>{rows, cols, gx, in_residual, in_residual, false, d, {0, 0, cols}});
  EXPECT_TRUE(same_bits(whole.raw(), in_x.raw()));
  EXPECT_TRUE(same_bits(whole.raw(), in_residual.raw()));
  cpu::Stream one{1};
  for (auto [r0, r1, c0, c1] :
       {std::array{0, 40, 0, 33}, {0, 40, 33, 101}, {7, 8, 1, 2}, {13, 40, 50, 101}}) {
    const std::int64_t m = r1 - r0, n = c1 - c0;
    std::vector<T> px, pr, want;
    for (std::int64_t r = r0; r < r1; ++r)
      for (std::int64_t c = c0; c < c1; ++c) {
        px.push_back(x[r * cols + c]), pr.push_back(add[r * cols + c]),
            want.push_back(whole.data()[r * cols + c]);
      }
    std::vector<T> y(m * n);
    kernels::dropout_add(
        one, DropoutAddArgs<T>{m, n, px.data(), pr.data(), y.data(), false, d, {r0, c0, cols}});
    EXPECT_TRUE(same_bits(y, want)) << r0 << " " << c0;
  }
}

TEST(DropoutRate, MeanIsKeptAndMasksDiffer) {
  const std::int64_t n = 1 << 20;
  const std::vector<float> x(n, 1.0f);
  std::vector<float> y(n), z(n);
  cpu::Stream s{2};
  RandomKey later = kKey;
  ++later.step;
  kernels::dropout_add(
      s, DropoutAddArgs<float>{
             1024, 1024, x.data(), nullptr, y.data(), false, {0.25f, kKey}, {0, 0, 1024}});
  kernels::dropout_add(
      s, DropoutAddArgs<float>{
             1024, 1024, x.data(), nullptr, z.data(), false, {0.25f, later}, {0, 0, 1024}});
  double kept = 0, both = 0, mean = 0;
  for (std::int64_t i = 0; i < n; ++i)
    kept += y[i] > 0, both += y[i] > 0 && z[i] > 0, mean += y[i] / n;
  const double sigma = std::sqrt(0.25 * 0.75 / n);
  EXPECT_NEAR(kept / n, 0.75, 5 * sigma);
  EXPECT_NEAR(both / n, 0.75 * 0.75, 5 * sigma);
  EXPECT_NEAR(mean, 1, 7 * sigma);
}

TYPED_TEST(Table, EmbeddingForwardAndBackward) {
  using T = TypeParam;
  const std::int64_t rows = 300, cols = 75, begin = 10, end = 31, table_rows = 24;
  std::vector<std::int32_t> ids(rows);
  for (std::int64_t r = 0; r < rows; ++r) ids[r] = static_cast<std::int32_t>(kKey.word(r) % 41) - 2;
  const Values table = random_values(table_rows * cols, 1), dy = random_values(rows * cols, 2),
               before = random_values(table_rows * cols, 3);
  Values want(rows * cols), gradient(table_rows * cols);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      if (ids[r] >= begin && ids[r] < end) {
        want[r * cols + c] = 3 * table[(ids[r] - begin) * cols + c];
        if (ids[r] != 12)
          gradient[(ids[r] - begin) * cols + c] += 3 * dy[r * cols + c];  // the padding
      }
  std::vector<T> bits[2];
  for (int threads : {1, 3}) {
    cpu::Stream s{threads};
    Guarded<T> gt(table), gy(rows * cols), gdy(dy), fresh(table_rows * cols), added(before);
    kernels::embedding(s,
                       kernels::EmbeddingArgs<T>{rows, cols, ids.data(), gt, begin, end, T{3}, gy});
    kernels::embedding_backward(
        s, kernels::EmbeddingBackwardArgs<T>{rows, cols, ids.data(), gdy, begin, end, table_rows,
                                             T{3}, 12, fresh, false});
    kernels::embedding_backward(
        s, kernels::EmbeddingBackwardArgs<T>{rows, cols, ids.data(), gdy, begin, end, table_rows,
                                             T{3}, 12, added, true});
    expect_close(gy.values(), want, tolerance<T>(2), "y");
    expect_close(fresh.values(), gradient, tolerance<T>(10), "dtable");
    expect_close(added.values(), plus(before, gradient), tolerance<T>(10), "added dtable");
    bits[threads / 2] = added.raw();
  }
  EXPECT_TRUE(same_bits(bits[0], bits[1]));
}

TYPED_TEST(Table, PositionsForwardAndBackward) {
  using T = TypeParam;
  const std::int64_t rows = 250, cols = 70, length = 24, offset = 31, first = 2, table_rows = 30;
  const Values x = random_values(rows * cols, 1), table = random_values(table_rows * cols, 2),
               before = random_values(table_rows * cols, 3);
  Values want = x, gradient(table_rows * cols);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c) {
      const std::int64_t at = (first + (offset + r) % length) * cols + c;
      want[r * cols + c] += table[at];
      gradient[at] += x[r * cols + c];
    }
  std::vector<T> bits[2];
  for (int threads : {1, 3}) {
    cpu::Stream s{threads};
    Guarded<T> gx(x), gt(table), gy(rows * cols), fresh(table_rows * cols), added(before);
    kernels::add_position(s,
                          kernels::PositionArgs<T>{rows, cols, offset, length, first, gx, gt, gy});
    kernels::add_position_backward(
        s, kernels::PositionBackwardArgs<T>{rows, cols, offset, length, first, table_rows, gx,
                                            fresh, false});
    kernels::add_position_backward(
        s, kernels::PositionBackwardArgs<T>{rows, cols, offset, length, first, table_rows, gx,
                                            added, true});
    expect_close(gy.values(), want, tolerance<T>(2), "y");
    expect_close(fresh.values(), gradient, tolerance<T>(10), "dtable");
    expect_close(added.values(), plus(before, gradient), tolerance<T>(10), "added dtable");
    bits[threads / 2] = added.raw();
  }
  EXPECT_TRUE(same_bits(bits[0], bits[1]));
  cpu::Stream s{1};
  const kernels::PositionBackwardArgs<T> too_long{1, 1, 0, 8, 1, 8, nullptr, nullptr, false};
  EXPECT_THROW(kernels::add_position_backward(s, too_long), Error);
}

TYPED_TEST(Table, RotationAndItsTranspose) {
  using T = TypeParam;
  for (const auto& [accumulate, turning, factor] :
       {std::tuple{false, 22, 1.0}, {true, 22, 1.25}, {false, 10, 1.5}, {true, 10, 1.0}}) {
    const std::int64_t rows = 37, size = 22, heads = 3, cols = size * heads + 13, offset = 5,
                       length = 16, first = 2, half = turning / 2;
    std::vector<double> frequency(half);
    for (std::int64_t i = 0; i < half; ++i) frequency[i] = std::pow(10000.0, -1.0 * i / half);
    const Values x = random_values(rows * cols, 1), before = random_values(rows * cols, 2),
                 w = random_values(rows * cols, 3);
    auto rotate = [&](const Values& in) {
      Values y = in;
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t h = 0; h < heads; ++h)
          for (std::int64_t i = 0; i < half; ++i) {
            const double angle = ((offset + r) % length + first) * frequency[i];
            const std::int64_t a = r * cols + h * size + i, b = a + half;
            y[a] = factor * (in[a] * std::cos(angle) - in[b] * std::sin(angle));
            y[b] = factor * (in[b] * std::cos(angle) + in[a] * std::sin(angle));
          }
      return y;
    };
    cpu::Stream s{3};
    Guarded<T> gx(x), gy(before), gw(w), back(before);
    kernels::RotaryArgs<T> args{
        rows,   cols, heads, size,  turning,   offset, length, first, frequency.data(),
        factor, gx,   gy,    false, accumulate};
    kernels::rotary(s, args);
    const Values base = accumulate ? before : Values(rows * cols);
    expect_close(gy.values(), plus(base, rotate(x)), tolerance<T>(2), "y");
    args.x = gw, args.y = back, args.inverse = true;
    kernels::rotary(s, args);
    const Values transposed = plus(back.values(), base, -1);
    EXPECT_NEAR(dot(transposed, x), dot(w, rotate(x)), 2e-5) << "<R' w, x> = <w, R x>";
    if (accumulate) continue;
    args.x = gx, args.y = gx, args.inverse = false;
    kernels::rotary(s, args);
    EXPECT_TRUE(same_bits(gx.raw(), gy.raw())) << "in place";
  }
}

}  // namespace
}  // namespace tfm::test
