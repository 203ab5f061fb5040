// Summaries of sequences against plain loops.
#include "kernels/pool.h"
#include "support/kernel_case.h"

namespace tfm::test {
namespace {

template <class T>
class PoolRows : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(PoolRows, Types);

TYPED_TEST(PoolRows, FirstMeanAndLastOfRealRows) {
  using T = TypeParam;
  constexpr std::int64_t cols = 70;
  const std::vector<std::int32_t> mask{0,  0,  0, -1, -1, -1, -1, -1, -1,
                                       -1, -1, 0, -1, 2,  -1, 0,  1,  0};
  const Values dy = random_values(3 * cols, 2);
  for (const SequenceShare share : {SequenceShare{}, {3, 0}, {3, 2}})
    for (const kernels::Pool kind :
         {kernels::Pool::first, kernels::Pool::mean, kernels::Pool::last})
      for (const bool padded : {false, true}) {
        const Rows rows{3, 6, share};
        const std::int64_t elements = rows.tokens() * cols;
        const Values x = random_values(elements, 1), before = random_values(elements, 3);
        Values y(3 * cols), dx(elements);
        for (std::int64_t b = 0; b < 3; ++b) {
          std::vector<std::int64_t> real;  // positions
          for (std::int64_t t = 0; t < 6; ++t)
            if (!padded || mask[b * 6 + t] >= 0) real.push_back(t);
          if (kind == kernels::Pool::first) real = {0};
          if (kind == kernels::Pool::last && !real.empty()) real = {real.back()};
          for (std::int64_t r = 0; r < rows.tokens(); ++r)
            each_chunk(rows, r, 1, [&](const ChunkRows& c) {
              const std::int64_t t = c.start + c.offset % rows.chunk_length();
              if (c.offset / rows.chunk_length() != b || std::ranges::find(real, t) == real.end())
                return;
              for (std::int64_t i = 0; i < cols; ++i) {
                y[b * cols + i] += x[r * cols + i] / static_cast<double>(real.size());
                dx[r * cols + i] = dy[b * cols + i] / static_cast<double>(real.size());
              }
            });
        }
        std::vector<T> bits[2];
        for (const int threads : {1, 3}) {
          cpu::Stream s{threads};
          const std::int32_t* given = padded ? mask.data() : nullptr;
          Guarded<T> gx(x), gy(3 * cols), gdy(dy), fresh(elements), added(before);
          kernels::pool(s, kernels::PoolArgs<T>{kind, rows, cols, given, gx, gy});
          for (const bool accumulate : {false, true})
            kernels::pool_backward(
                s, kernels::PoolBackwardArgs<T>{kind, rows, cols, given, gdy,
                                                accumulate ? added : fresh, accumulate});
          expect_close(gy.values(), y, tolerance<T>(2), "y");
          expect_close(fresh.values(), dx, tolerance<T>(2), "dx");
          expect_close(added.values(), plus(before, dx), tolerance<T>(2), "added dx");
          bits[threads / 2] = gy.raw();
        }
        EXPECT_TRUE(same_bits(bits[0], bits[1]));
      }
}

}  // namespace
}  // namespace tfm::test
