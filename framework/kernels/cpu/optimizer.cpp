#include "kernels/optimizer.h"

#include <array>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"
#include "kernels/optimizer.inl"

namespace tfm::kernels {
namespace {

constexpr std::int64_t kBlock = 64;            // elements of one exact term
constexpr std::int64_t kChunk = 256 * kBlock;  // terms added before the limbs are touched
constexpr double kLargest = 0x1p36;

template <class T>
double block_sum(const T* x, std::int64_t n, double scale) {
  double lane[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int j = 0; j < 8; ++j) lane[j] += static_cast<double>(x[i + j]) * static_cast<double>(x[i + j]);
  for (; i < n; ++i) lane[i % 8] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return (((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]))) * (scale * scale);
}

// A sum of terms truncated to multiples of 2^-88, as high * 2^-24 + low * 2^-88. Both parts of a term are exact.
struct FixedSum {
  unsigned __int128 high = 0, low = 0;
  double plain = 0;
  bool ok = true;

  void add(double s) {
    plain += s;
    if (!(s < kLargest)) {
      ok = false;
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
            static_cast<std::int64_t>(static_cast<std::uint64_t>(top) & mask), static_cast<std::int64_t>(top >> 32)};
  }
};

}  // namespace

template <class T>
void adam(cpu::Stream& stream, const AdamArgs<T>& a) {
  const AdamStep<T> update(a);
  parallel_ranges(stream, a.n, [&](std::int64_t begin, std::int64_t end) {
    T *p = a.param + begin, *m1 = a.m + begin, *m2 = a.v + begin;
    const T* grad = a.grad + begin;
    each<T>(end - begin, [&](std::int64_t i, auto m) TFM_INLINE {
      Vec<T> w = load(p + i, m), u = load(m1 + i, m), v = load(m2 + i, m);
      update(w, load(grad + i, m), u, v);
      store(p + i, w, m);
      store(m1 + i, u, m);
      store(m2 + i, v, m);
    });
  });
}

template <class T>
void sgd(cpu::Stream& stream, const SgdArgs<T>& a) {
  const T lr = static_cast<T>(a.lr), decay = static_cast<T>(a.decay), grad_scale = static_cast<T>(a.grad_scale);
  const T momentum = static_cast<T>(a.momentum);
  auto update = [&](auto with_buffer, auto first) {
    parallel_ranges(stream, a.n, [&](std::int64_t begin, std::int64_t end) {
      T *p = a.param + begin, *buffer = with_buffer() ? a.momentum_buffer + begin : nullptr;
      const T* grad = a.grad + begin;
      each<T>(end - begin, [&](std::int64_t i, auto m) TFM_INLINE {
        const Vec<T> w = load(p + i, m);
        Vec<T> d = load(grad + i, m) * grad_scale + w * decay;
        if constexpr (with_buffer() && !first()) d += load(buffer + i, m) * momentum;
        if constexpr (with_buffer()) store(buffer + i, d, m);
        store(p + i, w - d * lr, m);
      });
    });
  };
  with_flag(a.momentum_buffer != nullptr, [&](auto buffer) { with_flag(a.first, [&](auto first) { update(buffer, first); }); });
}

template <class T>
void average(cpu::Stream& stream, const AverageArgs<T>& a) {
  const T rate = static_cast<T>(1 - a.decay);
  parallel_ranges(stream, a.n, [&](std::int64_t begin, std::int64_t end) {
    each<T>(end - begin, [&](std::int64_t i, auto m) TFM_INLINE {
      const Vec<T> old = load(a.average + begin + i, m);
      store(a.average + begin + i, old + (load(a.param + begin + i, m) - old) * rate, m);
    });
  });
}

template <class T>
bool square_sum(cpu::Stream& stream, SquareSumArgs<T>& a) {
  const std::int64_t chunks = ceil_div(a.n, kChunk);
  double* plain = scratch<double, 15>(chunks);
  std::int64_t limb[4] = {0, 0, 0, 0}, bad = 0;
#pragma omp parallel for num_threads(stream.threads) schedule(static) reduction(+ : limb, bad) \
    if (stream.threads > 1 && a.n >= kTeamWork)
  for (std::int64_t c = 0; c < chunks; ++c) {
    FixedSum sum;
    for (std::int64_t i = c * kChunk; i < std::min(a.n, (c + 1) * kChunk); i += kBlock)
      sum.add(block_sum(a.x + i, std::min(kBlock, a.n - i), a.scale));
    const auto part = sum.limbs();
    for (int k = 0; k < 4; ++k) limb[k] += part[k];
    plain[c] = sum.plain;
    bad += !sum.ok;
  }
  for (int k = 0; k < 4; ++k) a.limbs[k] += limb[k];
  for (std::int64_t c = 0; c < chunks; ++c) a.plain += plain[c];
  for (int k = 0; k < 3; ++k) {
    a.limbs[k + 1] += a.limbs[k] >> 32;
    a.limbs[k] &= 0xFFFFFFFF;
  }
  return bad == 0;
}

#define TFM_INSTANTIATE(T)                              \
  template void adam(cpu::Stream&, const AdamArgs<T>&); \
  template void sgd(cpu::Stream&, const SgdArgs<T>&);   \
  template void average(cpu::Stream&, const AverageArgs<T>&); \
  template bool square_sum(cpu::Stream&, SquareSumArgs<T>&);
TFM_INSTANTIATE(float)
TFM_INSTANTIATE(double)

}  // namespace tfm::kernels
