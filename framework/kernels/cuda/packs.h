#pragma once
// Packs: eight consecutive elements per thread, accessed 16 bytes at a time if all eight exist and
// the address is aligned, otherwise one by one; and kernels over the packs of arrays and of rows.
#include <bit>
#include <cstdint>
#include <type_traits>

#include "core/dtype.h"
#include "kernels/cuda/block.h"

namespace tfm::kernels {

#define TFM_FLOATS(f) f(float) f(double) f(bf16) f(f16)

inline constexpr int kPack = 8, kWarp = 32, kThreads = 256;
// Elements per 16-byte access.
template <class T>
inline constexpr int kVector = 16 / static_cast<int>(sizeof(T));

// A pack of which elements [begin, end) exist.
struct Part {
  int begin, end;
  __device__ bool full() const { return begin == 0 && end == kPack; }
  __device__ bool has(int i) const { return i >= begin && i < end; }
};
// Part of the pack at element `at` of n elements; `at` may be negative.
__device__ inline Part part_of(std::int64_t at, std::int64_t n) {
  return {at < 0 ? static_cast<int>(-at) : 0, n - at < kPack ? static_cast<int>(n - at) : kPack};
}
__device__ inline Part part_of(int at, int n) {
  return {at < 0 ? -at : 0, n - at < kPack ? n - at : kPack};
}
// A pack of which all elements exist, at an address aligned to 16 bytes.
struct Whole {
  __device__ static constexpr bool has(int) { return true; }
};
template <class P>
__device__ P part_as(std::int64_t at, std::int64_t n) {
  if constexpr (std::is_same_v<P, Whole>)
    return {};
  else
    return part_of(at, n);
}
// Number of elements from the preceding 16-byte boundary to p.
template <class T>
__host__ __device__ int misalignment(const T* p) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(p) % 16 / sizeof(T));
}

// Whether the packs of rows of `cols` elements at these addresses are all Whole.
template <class... T>
bool whole_packs(std::int64_t cols, const T*... rows) {
  return cols % kPack == 0 && ((misalignment(rows) == 0) && ...);
}

// Eight elements in their memory representation. They are widened at use, so that loads do not wait
// for each other.
template <class T>
struct Eight {
  static constexpr int kWords = 2 * static_cast<int>(sizeof(T));
  std::uint32_t word[kWords];

  __device__ Accum<T> operator[](int i) const {
    if constexpr (sizeof(T) == 2)
      return cuda::widen<T>(
          std::bit_cast<T>(static_cast<std::uint16_t>(word[i / 2] >> i % 2 * 16)));
    else if constexpr (sizeof(T) == 4)
      return std::bit_cast<T>(word[i]);
    else
      return std::bit_cast<T>(static_cast<std::uint64_t>(word[2 * i + 1]) << 32 | word[2 * i]);
  }
  // The element must be 0.
  __device__ void set(int i, T x) {
    if constexpr (sizeof(T) == 2)
      word[i / 2] |= static_cast<std::uint32_t>(x.bits) << i % 2 * 16;
    else if constexpr (sizeof(T) == 4)
      word[i] = std::bit_cast<std::uint32_t>(x);
    else
      for (int half = 0; half < 2; ++half)
        word[2 * i + half] =
            static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(x) >> half * 32);
  }
};

template <class T>
__device__ Eight<T> load_pack(const T* p, Whole) {
  using Vector = cuda::Pack<std::uint32_t>;
  Eight<T> v;
  TFM_UNROLL
  for (int w = 0; w < v.kWords; w += 4) {
    const auto some = cuda::load<Vector>(reinterpret_cast<const std::uint32_t*>(p) + w);
    TFM_UNROLL
    for (int j = 0; j < 4; ++j) v.word[w + j] = some.at[j];
  }
  return v;
}
// Elements that do not exist load as 0.
template <class T>
__device__ Eight<T> load_pack(const T* p, Part part) {
  if (part.full() && misalignment(p) == 0) return load_pack(p, Whole{});
  Eight<T> v{};
  TFM_UNROLL
  for (int i = 0; i < kPack; ++i)
    if (part.has(i)) v.set(i, p[i]);
  return v;
}
// As store_pack() stores them. The compiler cannot contract what makes the elements with what uses
// them, so that sums of them have the bits that sums of loaded elements have.
template <class T>
__device__ Eight<T> narrow_pack(const Accum<T> (&v)[kPack]) {
  Eight<T> x{};
  TFM_UNROLL
  for (int i = 0; i < kPack; ++i)
    if constexpr (sizeof(T) > 2)
      x.set(i, v[i]);
    else if (i % 2 == 0)
      x.word[i / 2] = cuda::pack2<T>(v[i], v[i + 1]);
  TFM_UNROLL
  for (std::uint32_t& word : x.word) cuda::hide(word);
  return x;
}
template <class T>
__device__ void store_pack(T* p, Whole, const Accum<T> (&v)[kPack]) {
  if constexpr (sizeof(T) == 2) {
    cuda::Pack<std::uint32_t> all;
    TFM_UNROLL
    for (int i = 0; i < 4; ++i) all.at[i] = cuda::pack2<T>(v[2 * i], v[2 * i + 1]);
    cuda::store_global(p, all);
  } else {
    TFM_UNROLL
    for (int i = 0; i < kPack; i += kVector<T>) {
      cuda::Pack<T> some;
      TFM_UNROLL
      for (int j = 0; j < kVector<T>; ++j) some.at[j] = v[i + j];
      cuda::store_global(p + i, some);
    }
  }
}
template <class T>
__device__ void store_pack(T* p, Part part, const Accum<T> (&v)[kPack]) {
  if (part.full() && misalignment(p) == 0) return store_pack(p, Whole{}, v);
  TFM_UNROLL
  for (int i = 0; i < kPack; ++i)
    if (part.has(i)) p[i] = cuda::narrow<T>(v[i]);
}
template <class T, class P>
__device__ void store_pack(T* p, P part, Accum<T> (&v)[kPack], bool accumulate) {
  if (accumulate) {
    const auto before = load_pack(p, part);
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) v[i] += before[i];
  }
  store_pack(p, part, v);
}

// Calls f(at, part) for all packs of an array of n elements. The first pack starts `shift` elements
// before the array.
template <class P, class F>
__global__ void __launch_bounds__(kThreads) array_kernel(std::int64_t n, int shift, F f) {
  std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPack;
  if constexpr (std::is_same_v<P, Part>) at -= shift;
  if (at < n) f(at, part_as<P>(at, n));
}
// `main`: the array whose packs are aligned to 16 bytes. With `others`, all that f accesses, packs
// are Whole where those of every array are.
template <class T, class F, class... Other>
void over_array(cuda::Stream& stream, const T* main, std::int64_t n, F f, const Other*... others) {
  if (n <= 0) return;
  const int shift = misalignment(main);
  auto kernel = array_kernel<Part, F>;
  if constexpr (sizeof...(others) > 0)
    if (whole_packs(n, main, others...)) kernel = array_kernel<Whole, F>;
  cuda::launch(stream, kernel, static_cast<unsigned>(ceil_div(n + shift, kPack * kThreads)),
               kThreads, 0, n, shift, f);
}

// Calls f(row, column, part) for all packs of a (rows, cols) matrix, with 2^log threads per row.
template <class F>
__global__ void __launch_bounds__(kThreads)
    rows_kernel(std::int64_t rows, std::int64_t cols, int log, F f) {
  const std::int64_t row =
      static_cast<std::int64_t>(blockIdx.x) * (kThreads >> log) + (threadIdx.x >> log);
  if (row >= rows) return;
  for (std::int64_t c = (threadIdx.x & ((1u << log) - 1)) * kPack; c < cols; c += kPack << log)
    f(row, c, part_of(c, cols));
}
template <class F>
void over_rows(cuda::Stream& stream, std::int64_t rows, std::int64_t cols, F f) {
  if (rows <= 0 || cols <= 0) return;
  int log = 0;
  while (kPack << log < cols && 1 << log < kThreads) ++log;
  cuda::launch(stream, rows_kernel<F>, static_cast<unsigned>(ceil_div(rows, kThreads >> log)),
               kThreads, 0, rows, cols, log, f);
}

}  // namespace tfm::kernels
