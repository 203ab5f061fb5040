// The gated delta rule, state spaces and what is around them against plain recurrences and
// differences.
#include "kernels/gated_delta.h"
#include "kernels/short_convolution.h"
#include "support/kernel_case.h"

namespace tfm::test {
namespace {

using kernels::DeltaSizes;

struct DeltaCase {
  std::int64_t sequences, length;
  DeltaSizes sizes;
  bool documents = false;

  std::int64_t rows() const { return sequences * length; }
  Values qkv() const { return random_values(rows() * sizes.width(), 1); }
  Values skip() const { return random_values(sizes.heads, 5); }
  // Betas in (0, 1); decays mostly slow, some at once and some not at all.
  Values gates() const {
    Values v = random_values(rows() * 2 * sizes.heads, 2);
    for (std::size_t i = 0; i < v.size(); ++i) {
      double& x = v[i];
      const bool beta = i / sizes.heads % 2 == 0;
      x = beta ? (x + 1) / 2 : x > 0.8 ? 0 : x < -0.8 ? -90 : (x - 1) / 4;
      if (beta && i % 7 == 0) x = i % 2;
    }
    return v;
  }
  std::vector<std::int32_t> segments() const {
    std::vector<std::int32_t> v;
    for (std::int64_t r = 0; documents && r < rows(); ++r)
      v.push_back(static_cast<std::int32_t>((r * r / 97) % 5 - 1));
    return v;
  }
};

// S = exp(g) S; S += k (beta (v - S^T k))^T; y = S^T q, position by position; or S += k (beta v)^T
// and y = S^T q + skip v.
Values recurrence(const DeltaCase& c, const Values& qkv, const Values& gates) {
  const DeltaSizes& s = c.sizes;
  const auto segments = c.segments();
  const Values skips = c.skip();
  Values y;
  for (std::int64_t r = 0; r < c.rows(); ++r) y.resize(y.size() + s.heads * s.values);
  for (std::int64_t b = 0; b < c.sequences; ++b)
    for (std::int64_t h = 0; h < s.heads; ++h) {
      Values state(s.state()), held(s.values), seen(s.values);
      for (std::int64_t t = 0; t < c.length; ++t) {
        const std::int64_t r = b * c.length + t;
        const double* const q = qkv.data() + r * s.width() + h / (s.heads / s.key_heads) * s.keys;
        const double* const k = q + s.key_width();
        const double* const v = qkv.data() + r * s.width() + 2 * s.key_width() + h * s.values;
        const auto inverse = [&](const double* x) {
          double sum = 1e-6;
          for (std::int64_t i = 0; i < s.keys; ++i) sum += x[i] * x[i];
          return 1 / std::sqrt(sum);
        };
        const double of_q = s.corrects ? inverse(q) / std::sqrt(static_cast<double>(s.keys)) : 1,
                     of_k = s.corrects ? inverse(k) : 1, skip = s.corrects ? 0 : skips[h],
                     beta = gates[r * 2 * s.heads + h], g = gates[(r * 2 + 1) * s.heads + h];
        const bool begins = c.documents && t > 0 && segments[r] != segments[r - 1];
        const double decay = begins ? 0 : std::exp(g);
        for (double& x : state) x *= decay;
        std::ranges::fill(held, 0);
        std::ranges::fill(seen, 0);
        for (std::int64_t i = 0; s.corrects && i < s.keys; ++i)
          for (std::int64_t j = 0; j < s.values; ++j)
            held[j] += state[i * s.values + j] * k[i] * of_k;
        for (std::int64_t i = 0; i < s.keys; ++i)
          for (std::int64_t j = 0; j < s.values; ++j) {
            double& x = state[i * s.values + j];
            x += k[i] * of_k * beta * (v[j] - held[j]);
            seen[j] += x * q[i] * of_q;
          }
        for (std::int64_t j = 0; j < s.values; ++j)
          y[(r * s.heads + h) * s.values + j] = seen[j] + skip * v[j];
      }
    }
  return y;
}

template <class T>
struct DeltaRun {
  const DeltaCase& c;
  std::vector<std::int32_t> segments = c.segments();
  Guarded<T> qkv{c.qkv()};
  Guarded<Accum<T>> gates{c.gates()};
  Guarded<T> skip{c.skip()};
  Guarded<T> y{c.rows() * c.sizes.heads * c.sizes.values};
  Guarded<Accum<T>> borders{c.sequences * DeltaSizes::chunks(c.length) * c.sizes.heads *
                            c.sizes.state()};
  cpu::Stream stream{2};

  kernels::DeltaInputs<T> inputs() {
    return {c.sequences,
            c.length,
            c.sizes,
            qkv,
            gates,
            c.sizes.corrects ? nullptr : static_cast<T*>(skip),
            c.documents ? segments.data() : nullptr};
  }
  void forward() {
    kernels::gated_delta(stream, kernels::GatedDeltaArgs<T>{inputs(), y, nullptr, borders});
  }
};

template <class T>
class GatedDelta : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(GatedDelta, Types);

// Lengths of one, of a chunk, of one more; heads of widths that fill no vector.
const DeltaCase kCases[]{{1, 1, {1, 1, 4, 4}},
                         {2, 64, {1, 2, 5, 7}},
                         {1, 65, {2, 2, 33, 17}},
                         {2, 150, {2, 4, 16, 24}, true},
                         {1, 200, {1, 1, 128, 64}, true},
                         {2, 65, {1, 3, 5, 7, false}},
                         {1, 150, {2, 4, 16, 24, false}, true}};

TYPED_TEST(GatedDelta, EqualsTheRecurrence) {
  using T = TypeParam;
  for (const DeltaCase& c : kCases) {
    DeltaRun<T> run{c};
    run.forward();
    expect_close(run.y.values(), recurrence(c, c.qkv(), c.gates()), sizeof(T) == 8 ? 1e-13 : 2e-6,
                 "y");
  }
}

// The slope of dot(seed, y) in one of the inputs.
struct Difference {
  bool of_gates;
  std::size_t at;
  double slope;
};

// Of elements here and there; computed once for all element types.
const std::vector<Difference>& differences_of(const DeltaCase& c, const Values& seed) {
  static std::map<const DeltaCase*, std::vector<Difference>> known;
  std::vector<Difference>& all = known[&c];
  const Values qkv = c.qkv(), gates = c.gates();
  for (int i = 0; i < 24 && all.size() < 16; ++i) {
    const bool of_gates = i % 2 == 1;
    Values x = of_gates ? gates : qkv;
    const std::size_t at = (7919 * i + 13) % x.size();
    if (x[at] < -80) continue;  // nothing passes: its gradient is below the smallest number
    const double keep = x[at], h = 1e-3;
    const auto loss = [&](double step) {
      x[at] = keep + step;
      return dot(seed, of_gates ? recurrence(c, qkv, x) : recurrence(c, x, gates));
    };
    all.push_back(
        {of_gates, at, (8 * (loss(h) - loss(-h)) - (loss(2 * h) - loss(-2 * h))) / (12 * h)});
  }
  return all;
}

TYPED_TEST(GatedDelta, GradientsEqualDifferences) {
  using T = TypeParam;
  for (const DeltaCase& c : kCases) {
    DeltaRun<T> run{c};
    run.forward();
    const Values seed = random_values(run.y.size(), 3), before = random_values(run.qkv.size(), 4),
                 qkv = c.qkv();
    Guarded<T> dy(seed), dqkv(before);
    Guarded<Accum<T>> dgates(run.gates.size()), skip_terms(c.rows() * c.sizes.heads);
    kernels::gated_delta_backward(
        run.stream,
        kernels::GatedDeltaBackwardArgs<T>{
            run.inputs(), run.borders, dy, dqkv, dgates,
            c.sizes.corrects ? nullptr : static_cast<Accum<T>*>(skip_terms), true, false});
    for (std::int64_t i = 0; !c.sizes.corrects && i < skip_terms.size(); ++i) {
      double term = 0;
      for (std::int64_t j = 0; j < c.sizes.values; ++j)
        term += seed[i * c.sizes.values + j] *
                qkv[i / c.sizes.heads * c.sizes.width() + 2 * c.sizes.key_width() +
                    i % c.sizes.heads * c.sizes.values + j];
      EXPECT_NEAR(skip_terms.values()[i], term, sizeof(T) == 8 ? 1e-13 : 2e-6) << i;
    }
    for (const Difference& d : differences_of(c, seed)) {
      const double got = d.of_gates ? dgates.values()[d.at] : dqkv.values()[d.at] - before[d.at];
      EXPECT_NEAR(got, d.slope, (sizeof(T) == 8 ? 1e-9 : 2e-5) * std::max(1.0, std::abs(d.slope)))
          << (d.of_gates ? "gate " : "qkv ") << d.at << " of " << c.length << " positions";
    }
  }
}

// A sequence in pieces, with a state between them, is the sequence.
template <class T>
void expect_continues(const DeltaCase& whole) {
  DeltaRun<T> run{whole};
  run.forward();
  const DeltaSizes& s = whole.sizes;
  Guarded<T> y(run.y.size());
  Guarded<Accum<T>> state(s.heads * s.state(), 0);
  std::int64_t first = 0;
  for (const std::int64_t n : {64, 1, 1, 70, 14}) {
    kernels::DeltaInputs<T> in = run.inputs();
    in.length = n;
    in.qkv += first * s.width();
    in.gates += first * 2 * s.heads;
    kernels::gated_delta(
        run.stream, kernels::GatedDeltaArgs<T>{in, y + first * s.heads * s.values, state, nullptr});
    first += n;
  }
  EXPECT_EQ(first, whole.length);
  expect_close(y.values(), run.y.values(), sizeof(T) == 8 ? 1e-14 : 1e-6, "y");
}
TYPED_TEST(GatedDelta, ContinuesAState) {
  expect_continues<TypeParam>({1, 150, {2, 4, 16, 24}});
  expect_continues<TypeParam>({1, 150, {2, 4, 16, 24, false}});
}

// silu of the bias and the sum over k of w[k] x[t - K + 1 + k], within segments.
Values convolution(const Values& x, const Values& w, const Values& bias, std::int64_t length,
                   std::int64_t cols, std::int64_t kernel,
                   const std::vector<std::int32_t>& segments) {
  Values y(x.size());
  for (std::int64_t r = 0; r * cols < std::ssize(x); ++r)
    for (std::int64_t c = 0; c < cols; ++c) {
      double sum = bias[c];
      for (std::int64_t back = 0; back < kernel && back <= r % length; ++back) {
        bool seen = true;
        for (std::int64_t i = 0; i < back && !segments.empty(); ++i)
          seen = seen && segments[r - i - 1] == segments[r];
        if (seen) sum += w[c * kernel + kernel - 1 - back] * x[(r - back) * cols + c];
      }
      y[r * cols + c] = sum / (1 + std::exp(-sum));
    }
  return y;
}

TYPED_TEST(GatedDelta, ConvolutionEqualsItsSumsAndContinues) {
  using T = TypeParam;
  constexpr std::int64_t length = 9, cols = 37;
  const std::vector<std::int32_t> segments{0, 0, 1, 1, 1, 1, 2, -1, -1, 3, 3, 3, 3, 3, 3, 0, 0, 0};
  for (const int kernel : {1, 2, 4, 8}) {
    const Values x = random_values(2 * length * cols, 1), w = random_values(cols * kernel, 2),
                 bias = kernel == 4 ? Values(cols) : random_values(cols, 3);
    cpu::Stream s{2};
    Guarded<T> gx(x), gw(w), gb(bias), y(std::ssize(x));
    const T* const given = kernel == 4 ? nullptr : static_cast<T*>(gb);
    kernels::short_convolution(
        s, kernels::ShortConvolutionArgs<T>{2, length, cols, kernel, gx, gw, given, segments.data(),
                                            nullptr, y});
    expect_close(y.values(), convolution(x, w, bias, length, cols, kernel, segments),
                 tolerance<T>(4), "y");
    // Both sequences, as one of twice the length, in pieces.
    Guarded<T> again(std::ssize(x)), state((kernel - 1) * cols, 0);
    std::int64_t first = 0;
    for (const std::int64_t n : {1, 2, 1, 12, 2}) {
      kernels::short_convolution(
          s, kernels::ShortConvolutionArgs<T>{1, n, cols, kernel, gx + first * cols, gw, given,
                                              nullptr, state, again + first * cols});
      first += n;
    }
    expect_close(again.values(), convolution(x, w, bias, 2 * length, cols, kernel, {}),
                 tolerance<T>(4), "continued");
  }
}

}  // namespace
}  // namespace tfm::test
