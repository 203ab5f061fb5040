// Parameter updates, and the exact sum of squares.
#include "kernels/optimizer.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "device/memory.h"
#include "kernels/cuda/packs.h"

namespace tfm::kernels {
namespace {

__device__ inline float sqrt(float x) { return ::sqrtf(x); }
__device__ inline double sqrt(double x) { return ::sqrt(x); }

}  // namespace
}  // namespace tfm::kernels

#include "kernels/optimizer.inl"

namespace tfm::kernels {
namespace {

template <class T> struct Adam {
  AdamArgs<T> a;
  AdamStep<T> update;
  __device__ void operator()(std::int64_t at, Part part) const {
    const auto p = load_pack(a.param + at, part), g = load_pack(a.grad + at, part), m = load_pack(a.m + at, part), v = load_pack(a.v + at, part);
    T to[kPack], m1[kPack], m2[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) {
      to[i] = p[i], m1[i] = m[i], m2[i] = v[i];
      update(to[i], g[i], m1[i], m2[i]);
    }
    store_pack(a.param + at, part, to);
    store_pack(a.m + at, part, m1);
    store_pack(a.v + at, part, m2);
  }
};

template <class T> struct Sgd {
  SgdArgs<T> a;
  T lr, momentum, decay, grad_scale;
  __device__ void operator()(std::int64_t at, Part part) const {
    const bool add = a.momentum_buffer && !a.first;
    const auto p = load_pack(a.param + at, part), g = load_pack(a.grad + at, part);
    const auto buffer = add ? load_pack(a.momentum_buffer + at, part) : Eight<T>{};
    T to[kPack], d[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) {
      d[i] = g[i] * grad_scale + p[i] * decay;
      if (add) d[i] += buffer[i] * momentum;
      to[i] = p[i] - d[i] * lr;
    }
    if (a.momentum_buffer) store_pack(a.momentum_buffer + at, part, d);
    store_pack(a.param + at, part, to);
  }
};

template <class T> struct Average {
  AverageArgs<T> a;
  T rate;
  __device__ void operator()(std::int64_t at, Part part) const {
    const auto p = load_pack(a.param + at, part), old = load_pack(a.average + at, part);
    T to[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) to[i] = old[i] + (p[i] - old[i]) * rate;
    store_pack(a.average + at, part, to);
  }
};

constexpr int kTerm = 64;                              // elements of one exact term, which two threads add up
constexpr int kSpan = kThreads / 2 * kTerm;            // elements of a block of threads at a time
constexpr std::int64_t kMostBlocks = 1024;

// Terms truncated to multiples of 2^-88, in pieces of 32 bits, least first: 2^31 terms fit. The order of adding does not matter.
struct TermSum {
  std::int64_t limb[4], too_large;
  double plain;
};

// The elements 8 i + j, 0 <= j < 4, of the n at x are added to lane[j], for all i in order.
template <class T> __device__ void add_squares(const T* x, std::int64_t n, bool aligned, double (&lane)[4]) {
  auto add = [&](int j, T v) { lane[j] = ::fma(static_cast<double>(v), static_cast<double>(v), lane[j]); };
  TFM_UNROLL
  for (int i = 0; i < kTerm; i += 8)
    if (aligned && i + 4 <= n) {
      TFM_UNROLL
      for (int j = 0; j < 4; j += kVector<T>) {
        const auto some = cuda::load<cuda::Pack<T>>(x + i + j);
        TFM_UNROLL
        for (int k = 0; k < kVector<T>; ++k) add(j + k, some.at[k]);
      }
    } else {
      TFM_UNROLL
      for (int j = 0; j < 4; ++j)
        if (i + j < n) add(j, x[i + j]);
    }
}

__device__ inline void add_term(double s, TermSum& sum) {
  sum.plain += s;
  if (!(s < 0x1p36)) {
    ++sum.too_large;
    return;
  }
  const double scaled = s * 0x1p24;
  const auto high = static_cast<std::int64_t>(scaled);
  const auto low = static_cast<std::uint64_t>((scaled - static_cast<double>(high)) * 0x1p64);
  sum.limb[0] += static_cast<std::int64_t>(low & 0xFFFFFFFFu);
  sum.limb[1] += static_cast<std::int64_t>(low >> 32);
  sum.limb[2] += high & 0xFFFFFFFF;
  sum.limb[3] += high >> 32;
}

// The order in which the 64 squares of a term are added, and with it the term's bits, is that of kernels/cpu/optimizer.cpp (for
// doubles, where that multiplies and adds in one rounding).
template <class T> __global__ void __launch_bounds__(kThreads) square_sum_kernel(const T* x, std::int64_t n, double factor, TermSum* sums) {
  const int half = static_cast<int>(threadIdx.x) % 2;
  const bool aligned = misalignment(x) == 0;
  TermSum sum{};
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kSpan; first < n; first += static_cast<std::int64_t>(gridDim.x) * kSpan) {
    const std::int64_t at = first + static_cast<int>(threadIdx.x) / 2 * kTerm + half * 4;
    double lane[4] = {0, 0, 0, 0};
    if (at < n) add_squares(x + at, n - at, aligned, lane);
    TFM_UNROLL
    for (double& l : lane) l += cuda::shuffle_xor(l, 1);
    if (half == 0 && at < n) add_term(((lane[0] + lane[2]) + (lane[1] + lane[3])) * factor, sum);
  }
  double plain[1] = {sum.plain};
  std::int64_t whole[5] = {sum.limb[0], sum.limb[1], sum.limb[2], sum.limb[3], sum.too_large};
  auto* shared = cuda::shared_memory<std::int64_t>();
  over_block(whole, shared, Sum{});
  over_block(plain, reinterpret_cast<double*>(shared + 5 * (kThreads / kWarp)), Sum{});
  if (threadIdx.x == 0) sums[blockIdx.x] = {{whole[0], whole[1], whole[2], whole[3]}, whole[4], plain[0]};
}

}  // namespace

template <class T> void adam(cuda::Stream& stream, const AdamArgs<T>& a) { over_array(stream, a.param, a.n, Adam<T>{a, AdamStep<T>(a)}); }
template <class T> void sgd(cuda::Stream& stream, const SgdArgs<T>& a) {
  over_array(stream, a.param, a.n,
             Sgd<T>{a, static_cast<T>(a.lr), static_cast<T>(a.momentum), static_cast<T>(a.decay), static_cast<T>(a.grad_scale)});
}
template <class T> void average(cuda::Stream& stream, const AverageArgs<T>& a) {
  over_array(stream, a.average, a.n, Average<T>{a, static_cast<T>(1 - a.decay)});
}

template <class T> bool square_sum(cuda::Stream& stream, SquareSumArgs<T>& a) {
  if (a.n <= 0) return true;
  const std::int64_t blocks = std::min(kMostBlocks, ceil_div(a.n, kSpan));
  cuda::Scratch<TermSum> sums(stream, blocks);
  const double scale = a.scale;
  cuda::launch(stream, square_sum_kernel<T>, static_cast<unsigned>(blocks), kThreads, 6 * (kThreads / kWarp) * sizeof(double), a.x, a.n, scale * scale,
               sums);
  std::vector<TermSum> all(static_cast<std::size_t>(blocks));
  download(stream, all.data(), sums, blocks * static_cast<std::int64_t>(sizeof(TermSum)));
  std::int64_t too_large = 0;
  for (const TermSum& part : all) {
    for (int k = 0; k < 4; ++k) a.limbs[k] += part.limb[k];
    a.plain += part.plain;
    too_large += part.too_large;
  }
  for (int k = 0; k < 3; ++k) {
    a.limbs[k + 1] += a.limbs[k] >> 32;
    a.limbs[k] &= 0xFFFFFFFF;
  }
  return too_large == 0;
}

#define TFM_INSTANTIATE(T)                                     \
  template void adam(cuda::Stream&, const AdamArgs<T>&);       \
  template void sgd(cuda::Stream&, const SgdArgs<T>&);         \
  template void average(cuda::Stream&, const AverageArgs<T>&); \
  template bool square_sum(cuda::Stream&, SquareSumArgs<T>&);
TFM_INSTANTIATE(float)
TFM_INSTANTIATE(double)

}  // namespace tfm::kernels
