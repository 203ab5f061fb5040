#include "kernels/optimizer.h"

#include <algorithm>
#include <array>
#include <span>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_weights.h"
#include "kernels/optimizer.inl"
#include "kernels/part_update.h"

namespace tfm::kernels {
namespace {

constexpr std::int64_t kBlock = 64;            // elements of one exact term
constexpr std::int64_t kChunk = 256 * kBlock;  // terms added before the limbs are touched
constexpr int kSums = 8;  // of a block, added in pairs that are 4, 2 and 1 apart
constexpr double kLargest = 0x1p36;

// X: a pointer, or weights.
template <class X>
double block_sum(X x, std::int64_t n, double scale) {
  double lane[kSums] = {};
  std::int64_t i = 0;
  for (; i + kSums <= n; i += kSums)
    for (int j = 0; j < kSums; ++j)
      lane[j] += static_cast<double>(x[i + j]) * static_cast<double>(x[i + j]);
  for (; i < n; ++i) lane[i % kSums] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return (((lane[0] + lane[4]) + (lane[2] + lane[6])) +
          ((lane[1] + lane[5]) + (lane[3] + lane[7]))) *
         (scale * scale);
}

// Half of a vector of floats: elements [half * kLanes<double>, (half + 1) * kLanes<double>).
template <int Half>
TFM_INLINE inline Vec<double> widen(Vec<float> v) {
#ifdef TFM_AVX512  // GCC 12 converts in halves
  return _mm512_maskz_cvtps_pd(0xFF, _mm512_maskz_extractf32x8_ps(0xFF, v, Half));
#else
  typedef float Floats __attribute__((vector_size(kVectorBytes / 2)));
  Floats some;
  std::memcpy(&some, reinterpret_cast<const char*>(&v) + Half * sizeof some, sizeof some);
  return __builtin_convertvector(some, Vec<double>);
#endif
}

// The same of a whole block of floats, with the same bits: their squares are exact.
template <class X>
TFM_INLINE inline double block_sum(X x, double scale) {
  constexpr int kDoubles = kLanes<double>, kVectors = kSums / kDoubles;
  Vec<double> lane[kVectors]{};
  for (std::int64_t i = 0; i < kBlock; i += kLanes<float>) {
    const Vec<float> v = load_ahead(x + i, Full{});
    const Vec<double> low = widen<0>(v), high = widen<1>(v);
    lane[i / kDoubles % kVectors] += low * low;
    lane[(i / kDoubles + 1) % kVectors] += high * high;
  }
  for (int w = kVectors / 2; w > 0; w /= 2)
    for (int j = 0; j < w; ++j) lane[j] += lane[j + w];
  return sum_of<double>(lane[0]) * (scale * scale);
}

// A sum of terms truncated to multiples of 2^-88, as high * 2^-24 + low * 2^-88. Both parts of a
// term are exact.
struct FixedSum {
  unsigned __int128 high = 0, low = 0;
  double plain = 0;
  std::int64_t too_large = 0;

  void add(double s) {
    plain += s;
    if (!(s < kLargest)) {
      ++too_large;
      return;
    }
    const double scaled = s * 0x1p24;
    const auto whole = static_cast<std::int64_t>(scaled);
    high += static_cast<std::uint64_t>(whole);
    low += static_cast<std::uint64_t>((scaled - static_cast<double>(whole)) * 0x1p64);
  }
  // 32 bits a limb, the last takes what is above.
  std::array<std::int64_t, 4> limbs() const {
    constexpr std::uint64_t mask = 0xFFFFFFFFu;
    const unsigned __int128 top = high + (low >> 64);
    const auto bottom = static_cast<std::uint64_t>(low);
    return {static_cast<std::int64_t>(bottom & mask), static_cast<std::int64_t>(bottom >> 32),
            static_cast<std::int64_t>(static_cast<std::uint64_t>(top) & mask),
            static_cast<std::int64_t>(top >> 32)};
  }
};

template <class X>
struct Elements {
  X x;
  std::int64_t n;
};

// Of several ranges, which are divided into chunks.
struct RangeSums {
  std::int64_t limb[4] = {0, 0, 0, 0}, too_large = 0;
  double plain = 0;

  template <class X>
  RangeSums(cpu::Stream& stream, std::span<const Elements<X>> ranges, double scale) {
    std::int64_t count = 0, work = 0;
    for (const Elements<X>& range : ranges) count += ceil_div(range.n, kChunk), work += range.n;
    Elements<X>* const chunks = scratch<Elements<X>, struct Chunks>(count);
    count = 0;
    for (const auto& [x, n] : ranges)
      for (std::int64_t i = 0; i < n; i += kChunk)
        chunks[count++] = {x + i, std::min(kChunk, n - i)};
    double* plains = scratch<double, struct PlainSums>(count);
    std::int64_t sum[4] = {0, 0, 0, 0}, bad = 0;
#pragma omp parallel for num_threads(stream.threads) schedule(static) reduction(+ : sum, bad) if (stream.threads > 1 && work >= kTeamWork)
    for (std::int64_t c = 0; c < count; ++c) {
      const auto [x, n] = chunks[c];
      FixedSum some;
      std::int64_t i = 0;
      if constexpr (!std::is_same_v<std::decay_t<decltype(x[0])>, double>)
        for (; i + kBlock <= n; i += kBlock) some.add(block_sum(x + i, scale));
      for (; i < n; i += kBlock) some.add(block_sum(x + i, std::min(kBlock, n - i), scale));
      const auto part = some.limbs();
      for (int k = 0; k < 4; ++k) sum[k] += part[k];
      plains[c] = some.plain;
      bad += some.too_large;
    }
    for (int k = 0; k < 4; ++k) limb[k] = sum[k];
    too_large = bad;
    for (std::int64_t c = 0; c < count; ++c) plain += plains[c];
  }
  SquareSum result() {
    carry(limb);
    SquareSum sum{.too_large = static_cast<double>(too_large), .plain = plain};
    put(limb, sum);
    return sum;
  }
};

template <bool First, bool Second, class T, class P, class Step>
void update_range(cpu::Stream& stream, const UpdateRange<T, P>& r, const Step& step) {
  with_flag(r.average != nullptr, [&](auto average) {
    parallel_ranges(stream, r.n, [&](std::int64_t begin, std::int64_t end) {
      each<T>(end - begin, [&](std::int64_t i, auto mask) TFM_INLINE {
        const std::int64_t at = begin + i;
        Vec<T> p = load_ahead(r.param + at, mask), m{}, v{};
        if constexpr (First) m = load_ahead(r.m + at, mask);
        if constexpr (Second) v = load_ahead(r.v + at, mask);
        step(p, load_ahead(r.grad + at, mask), m, v);
        store(r.param + at, p, mask);
        if constexpr (First) store(r.m + at, m, mask);
        if constexpr (Second) store(r.v + at, v, mask);
        if constexpr (average()) {
          const Vec<T> old = load(r.average + at, mask);
          store(r.average + at, old + (p - old) * step.rate, mask);
        }
      });
    });
  });
}

}  // namespace

template <class Rule, class T, class P>
void update(cpu::Stream& stream, const UpdateArgs<Rule, T, P>& a) {
  const Steps<Rule, T> steps(a.rule, *a.numbers, *a.outcome);
  for (const UpdateRange<T, P>& r : steps.applied ? a.ranges : std::span<const UpdateRange<T, P>>())
    with_flag(r.m != nullptr, [&](auto first) {
      with_flag(r.v != nullptr, [&](auto second) {
        update_range<first(), second()>(stream, r, r.decays ? steps.decaying : steps.plain);
      });
    });
}

template <class P>
void swap(cpu::Stream& stream, const SwapArgs<P>& a) {
  parallel_ranges(stream, a.n, [&](std::int64_t begin, std::int64_t end) {
    each<Accum<P>>(end - begin, [&](std::int64_t i, auto mask) TFM_INLINE {
      const std::int64_t at = begin + i;
      const Vec<P> p = load(a.param + at, mask);
      store(a.param + at, load(a.average + at, mask), mask);
      store(a.average + at, p, mask);
    });
  });
}

template <class T>
void square_sum(cpu::Stream& stream, const SquareSumArgs<T>& a) {
  const auto count = static_cast<std::int64_t>(a.ranges.size());
  auto* const ranges = scratch<Elements<const T*>, struct Ranges>(count);
  std::transform(a.ranges.begin(), a.ranges.end(), ranges, [&](const Range& r) {
    return Elements<const T*>{a.x + r.begin, r.end - r.begin};
  });
  a.outcome->squares =
      RangeSums(stream, std::span<const Elements<const T*>>(ranges, a.ranges.size()),
                1 / a.numbers->loss_scale)
          .result();
  for (const double loss : a.outcome->loss) a.outcome->squares.bad_losses += !finite(loss);
  a.outcome->squares.bad_losses += a.outcome->excess > 0;
}

namespace {

// `to` += the squares at x, which are those of elements [begin, begin + n) of a buffer.
template <class X>
void add_exactly(cpu::Stream& stream, X x, std::int64_t begin, std::int64_t n, SquareSum& to) {
  const std::int64_t head = std::min(n, round_up(begin, kBlock) - begin);
  const Elements<X> ranges[] = {{x, head}, {x + head, n - head}};
  const SquareSum some = RangeSums(stream, std::span<const Elements<X>>(ranges), 1).result();
  for (std::size_t k = 0; k < std::size(some.limb); ++k) to.limb[k] += some.limb[k];
  to.too_large += some.too_large;
  to.plain += some.plain;
}

}  // namespace

template <class T, class P>
void add_squares(cpu::Stream& stream, const PartSquaresArgs<T, P>& a) {
  if (a.outcome->applied == 0) return;
  for (const PartElements<T, P>& r : a.ranges) {
    add_exactly(stream, r.param, r.begin, r.n, a.sums[r.part].weights);
    add_exactly(stream, r.grad, r.begin, r.n, a.sums[r.part].direction);
  }
}

void clip(cpu::Stream&, const ClipArgs& a) { decide_update(a); }

#define TFM_INSTANTIATE_RULE(Rule, T, P) \
  template void update(cpu::Stream&, const UpdateArgs<Rule, T, P>&);
#define TFM_INSTANTIATE(T, P)                                            \
  template void swap(cpu::Stream&, const SwapArgs<P>&);                  \
  template void add_squares(cpu::Stream&, const PartSquaresArgs<T, P>&); \
  TFM_UPDATE_RULES(TFM_INSTANTIATE_RULE, T, P)
TFM_UPDATES(TFM_INSTANTIATE)
template void square_sum(cpu::Stream&, const SquareSumArgs<float>&);
template void square_sum(cpu::Stream&, const SquareSumArgs<double>&);

}  // namespace tfm::kernels
