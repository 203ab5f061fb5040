#pragma once
// Sums of squares that add terms of 64 elements as exact integers, so that the order of the terms
// does not matter.
#include "kernels/cuda/reductions.h"
#include "kernels/cuda/updates.h"
#include "kernels/part_update.inl"

namespace tfm::kernels {
namespace {

template <class T>
using Vector = cuda::Pack<T>;
constexpr int kTerm = 64;                    // elements of a term, which two threads sum
constexpr int kSpan = kThreads / 2 * kTerm;  // elements that a thread block sums at a time
// Place of a row of eight elements of a term in shared memory. Rows are permuted so that adjacent
// terms are read from different banks.
__device__ inline unsigned row_of(unsigned term, unsigned row) { return row ^ term % 4; }

// Starts to copy the n elements at x to shared memory, N at a time. If N is 1, the rest of the span
// is set to zero; otherwise n must fill it.
template <int N, class T, class X>
__device__ void fetch_span(T* span, X x, std::int64_t n) {
  const unsigned first = threadIdx.x * N, term = first / kTerm;
  static_assert(kThreads * N % (4 * kTerm) == 0);
  span += term * kTerm + row_of(term, first % kTerm / 8) * 8 + first % 8;
  TFM_UNROLL
  for (int i = 0; i < kSpan; i += kThreads * N) {
    const bool used = N > 1 || first + i < n;
    if constexpr (std::is_pointer_v<X>)
      cuda::copy_async<N * sizeof(T)>(span + i, x + first + i,
                                      used ? static_cast<int>(N * sizeof(T)) : 0);
    else
      store_vector(span + i, used ? load_vector<N>(x + (first + i)) : cuda::Pack<float, N>{});
  }
  cuda::copy_async_commit();
}

// Adds the elements 8 i + 4 half + j, 0 <= j < 4, of a term to lane[j], for all i in order.
template <class T>
__device__ void add_term_squares(const T* span, unsigned term, unsigned half, double (&lane)[4]) {
  TFM_UNROLL
  for (unsigned row = 0; row < kTerm / 8; ++row) TFM_UNROLL
  for (int j = 0; j < 4; j += kVector<T>) {
    const auto some =
        cuda::load<Vector<T>>(span + term * kTerm + half * 4 + row_of(term, row) * 8 + j);
    TFM_UNROLL
    for (int k = 0; k < kVector<T>; ++k) {
      const auto x = static_cast<double>(some.at[k]);
      lane[j + k] = ::fma(x, x, lane[j + k]);
    }
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

inline std::int64_t square_blocks(std::int64_t n) {
  return std::min<std::int64_t>(kMostSquareBlocks, ceil_div(n, kSpan));
}

// This thread's part of the sum of the n squares at x times `factor`. Block `block` takes every
// `blocks`-th span, in kSpan elements of shared memory. The 64 squares of a term are added in the
// order of kernels/cpu/optimizer.cpp, so that the term has the same bits (for double: if that uses
// fused multiply-adds).
template <class T, class X>
__device__ TermSum sum_of_spans(X x, std::int64_t n, double factor, unsigned block,
                                unsigned blocks) {
  const unsigned half = threadIdx.x % 2;
  const bool aligned = vectors_fit<kVector<T>>(x);
  T* span = cuda::shared_memory<T>();
  TermSum sum{};
  for (std::int64_t first = std::int64_t{block} * kSpan; first < n;
       first += std::int64_t{blocks} * kSpan) {
    if (aligned && n - first >= kSpan)
      fetch_span<kVector<T>>(span, x + first, n - first);
    else
      fetch_span<1>(span, x + first, n - first);
    cuda::copy_async_wait<0>();
    cuda::block_barrier();
    double lane[4] = {0, 0, 0, 0};
    add_term_squares(span, threadIdx.x / 2, half, lane);
    TFM_UNROLL
    for (double& l : lane) l += cuda::shuffle_xor(l, 1);
    if (half == 0) add_term(((lane[0] + lane[2]) + (lane[1] + lane[3])) * factor, sum);
    cuda::block_barrier();
  }
  return sum;
}

__device__ inline TermSum sum_of_blocks(const TermSum* sums, std::int64_t count) {
  TermSum sum{};
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) {
    const TermSum& part = sums[i];
    TFM_UNROLL
    for (int k = 0; k < 4; ++k) sum.limb[k] += part.limb[k];
    sum.too_large += part.too_large;
    sum.plain += part.plain;
  }
  return sum;
}

// Sum over all threads of the block, in kTermSumShared bytes of shared memory.
constexpr std::size_t kTermSumShared = 6 * (kThreads / kWarp) * sizeof(double);
__device__ inline TermSum over_block(const TermSum& sum) {
  double plain[1] = {sum.plain};
  std::int64_t whole[5] = {sum.limb[0], sum.limb[1], sum.limb[2], sum.limb[3], sum.too_large};
  auto* shared = cuda::shared_memory<std::int64_t>();
  over_block(whole, shared, Sum{});
  over_block(plain, reinterpret_cast<double*>(shared + 5 * (kThreads / kWarp)), Sum{});
  return {{whole[0], whole[1], whole[2], whole[3]}, whole[4], plain[0]};
}

__device__ inline SquareSum square_sum_of(const TermSum& sum) {
  std::int64_t limb[4] = {sum.limb[0], sum.limb[1], sum.limb[2], sum.limb[3]};
  carry(limb);
  SquareSum all{};
  put(limb, all);
  all.too_large = static_cast<double>(sum.too_large);
  all.plain = sum.plain;
  return all;
}

}  // namespace
}  // namespace tfm::kernels
