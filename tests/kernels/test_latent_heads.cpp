// Heads of latent attention against complex numbers.
#include <complex>

#include "kernels/latent_heads.h"
#include "support/kernel_case.h"

namespace tfm::test {
namespace {

template <class T>
class LatentHeads : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(LatentHeads, Types);

// Columns (2 i, 2 i + 1) as the parts of a number that is multiplied by exp(angle i).
Values turned(const Values& x, std::int64_t first, const std::vector<double>& frequency,
              double position) {
  Values y(2 * frequency.size());
  for (std::size_t i = 0; i < frequency.size(); ++i) {
    const std::complex<double> z = std::complex(x[first + 2 * i], x[first + 2 * i + 1]) *
                                   std::polar(1.0, position * frequency[i]);
    y[2 * i] = z.real(), y[2 * i + 1] = z.imag();
  }
  return y;
}

TYPED_TEST(LatentHeads, AreTurnedWithTheirPositions) {
  using T = TypeParam;
  constexpr std::int64_t rows = 6, heads = 3, plain = 5, turning = 4, values = 7, size = 9,
                         length = 3, offset = 11;
  const std::vector<double> frequency{1.0, 0.03};
  const Values q = random_values(rows * heads * size, 1),
               kv = random_values(rows * heads * (plain + values), 2),
               shared = random_values(rows * turning, 3);
  const auto position = [&](std::int64_t r) { return static_cast<double>(r % length + offset); };
  Values expected(rows * 3 * heads * size);
  for (std::int64_t r = 0; r < rows; ++r) {
    const Values key = turned(shared, r * turning, frequency, position(r));
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t of_q = (r * heads + h) * size, of_kv = (r * heads + h) * (plain + values),
                         to = r * 3 * heads * size + h * size;
      const Values query = turned(q, of_q + plain, frequency, position(r));
      for (std::int64_t i = 0; i < plain; ++i) {
        expected[to + i] = q[of_q + i];
        expected[to + heads * size + i] = kv[of_kv + i];
      }
      for (std::int64_t i = 0; i < turning; ++i) {
        expected[to + plain + i] = query[i];
        expected[to + heads * size + plain + i] = key[i];
      }
      for (std::int64_t i = 0; i < values; ++i)
        expected[to + 2 * heads * size + i] = kv[of_kv + plain + i];
    }
  }
  cpu::Stream s{2};
  Guarded<T> gq(q), gkv(kv), gshared(shared), out(rows * 3 * heads * size),
      again(rows * heads * turning);
  const kernels::Positions positions{length, offset, frequency.data()};
  kernels::latent_heads(
      s, kernels::LatentHeadsArgs<T>{
             rows, {heads, plain, turning, values}, positions, gq, gkv, gshared, out});
  expect_close(out.values(), expected, tolerance<T>(2), "qkv");
  kernels::turn(s,
                kernels::TurnArgs<T>{rows, heads, turning, positions, static_cast<T*>(gq) + plain,
                                     heads * size, size, again, heads * turning, turning});
  Values queries;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t i = 0; i < turning; ++i)
        queries.push_back(expected[r * 3 * heads * size + h * size + plain + i]);
  expect_close(again.values(), queries, tolerance<T>(2), "turned");
}

}  // namespace
}  // namespace tfm::test
