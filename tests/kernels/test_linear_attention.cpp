// Linear attention against its definition, all pairs of positions.
#include "kernels/linear_attention.h"
#include "support/kernel_case.h"

namespace tfm::test {
namespace {

struct LinearCase {
  std::int64_t sequences, length;
  kernels::LinearSizes sizes;
  bool documents = false;

  std::int64_t rows() const { return sequences * length; }
  Values qkv() const { return random_values(rows() * 3 * sizes.width(), 1, 2); }
  // Segments of 7 positions, with padding before, within and behind them.
  std::vector<std::int32_t> segments() const {
    std::vector<std::int32_t> v;
    for (std::int64_t r = 0; documents && r < rows(); ++r)
      v.push_back(r % length % 5 == 0 ? -1 : static_cast<std::int32_t>(r % length / 7));
    return v;
  }
};

double feature(double x) { return x > 0 ? x + 1 : std::exp(x); }

Values definition(const LinearCase& c, const Values& qkv) {
  const auto& [heads, size, causal] = c.sizes;
  const auto segments = c.segments();
  Values y(static_cast<std::size_t>(c.rows() * heads * size));
  for (std::int64_t r = 0; r < c.rows(); ++r)
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t first = r / c.length * c.length;
      double sum = 0;
      double* const to = y.data() + (r * heads + h) * size;
      for (std::int64_t s = first; s < (causal ? r + 1 : first + c.length); ++s) {
        if (c.documents && (segments[s] < 0 || segments[s] != segments[r])) continue;
        const double* const q = qkv.data() + r * 3 * heads * size + h * size;
        const double* const k = qkv.data() + (s * 3 + 1) * heads * size + h * size;
        double score = 0;
        for (std::int64_t i = 0; i < size; ++i) score += feature(q[i]) * feature(k[i]);
        sum += score;
        for (std::int64_t i = 0; i < size; ++i) to[i] += score * k[heads * size + i];
      }
      for (std::int64_t i = 0; i < size; ++i) to[i] = sum == 0 ? 0 : to[i] / sum;
    }
  return y;
}

template <class T>
class LinearAttention : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(LinearAttention, Types);

// Lengths of one, of a chunk, of one more.
const LinearCase kLinearCases[]{{1, 1, {1, 4, true}},        {2, 64, {2, 5, true}},
                                {1, 65, {1, 33, true}},      {2, 150, {2, 16, true}},
                                {1, 27, {2, 6, true}, true}, {1, 1, {1, 3, false}},
                                {2, 130, {2, 7, false}},     {2, 27, {1, 8, false}, true}};

TYPED_TEST(LinearAttention, IsItsDefinition) {
  using T = TypeParam;
  for (const LinearCase& c : kLinearCases) {
    cpu::Stream s{2};
    auto segments = c.segments();
    Guarded<T> qkv(c.qkv()), y(c.rows() * c.sizes.width());
    Guarded<Accum<T>> sums(c.rows() * c.sizes.heads);
    const kernels::LinearAttentionArgs<T> a{
        c.sequences, c.length, c.sizes, qkv, c.documents ? segments.data() : nullptr, y, sums};
    kernels::linear_attention(s, a);
    expect_close(y.values(), definition(c, c.qkv()), sizeof(T) == 8 ? 1e-13 : 2e-6, "y");

    const Values seed = random_values(y.size(), 3), before = random_values(qkv.size(), 4);
    Guarded<T> dy(seed), dqkv(before);
    kernels::linear_attention_backward(s,
                                       kernels::LinearAttentionBackwardArgs<T>{a, dy, dqkv, true});
    for (int i = 0; i < 18; ++i) {
      Values x = c.qkv();
      const std::size_t at = (7919 * i + 13) % x.size();
      const double keep = x[at], h = 1e-4;
      const auto loss = [&](double step) {
        x[at] = keep + step;
        return dot(seed, definition(c, x));
      };
      const double d = (8 * (loss(h) - loss(-h)) - (loss(2 * h) - loss(-2 * h))) / (12 * h);
      EXPECT_NEAR(dqkv.values()[at] - before[at], d,
                  (sizeof(T) == 8 ? 1e-9 : 2e-5) * std::max(1.0, std::abs(d)))
          << at << " of " << c.length << " positions";
    }
  }
}

TYPED_TEST(LinearAttention, ContinuesAState) {
  using T = TypeParam;
  const LinearCase c{1, 150, {2, 16, true}};
  cpu::Stream s{2};
  Guarded<T> qkv(c.qkv()), y(c.rows() * c.sizes.width());
  Guarded<Accum<T>> state(c.sizes.heads * c.sizes.state(), 0);
  std::int64_t first = 0;
  for (const std::int64_t n : {64, 1, 1, 70, 14}) {
    kernels::linear_attention(
        s, kernels::LinearAttentionArgs<T>{1, n, c.sizes, qkv + first * 3 * c.sizes.width(),
                                           nullptr, y + first * c.sizes.width(), nullptr, state});
    first += n;
  }
  EXPECT_EQ(first, c.length);
  expect_close(y.values(), definition(c, c.qkv()), sizeof(T) == 8 ? 1e-13 : 2e-6, "y");
}

}  // namespace
}  // namespace tfm::test
