#pragma once
// Vectors of the width of the instruction set chosen at compile time, and loops over them. The tail
// of a loop runs the same operations as its body, so the result of an element does not depend on
// the address of its row or on its neighbors.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#include "core/dtype.h"

namespace tfm::kernels {

#define TFM_INLINE __attribute__((always_inline))

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define TFM_AVX512 1
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif

template <class T>
struct Simd {
  typedef T Vec __attribute__((vector_size(kVectorBytes)));
};
// Vector of T; of float for 16-bit types, which are computed in float.
template <class T>
using Vec = typename Simd<Accum<T>>::Vec;
typedef std::int32_t Ints __attribute__((vector_size(kVectorBytes)));
template <class T>
inline constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(Accum<T>));

struct Full {};      // all lanes
struct FirstLanes {  // the first n lanes
  int n;
};

template <class T>
TFM_INLINE inline Vec<T> splat(T x) {
  return Vec<T>{} + x;
}

template <class T>
TFM_INLINE inline Vec<T> iota() {
  Vec<T> v;
  for (int i = 0; i < kLanes<T>; ++i) v[i] = static_cast<T>(i);
  return v;
}

template <class T>
concept Half = sizeof(T) == 2;  // see simd_half.h
template <class T>
requires(!Half<T>) TFM_INLINE inline Vec<T> load(const T* p, Full) {
  Vec<T> v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class T>
requires(!Half<T>) TFM_INLINE inline void store(T* p, Vec<T> v, Full) {
  std::memcpy(p, &v, sizeof v);
}

#ifdef TFM_AVX512
TFM_INLINE inline Vec<float> load(const float* p, FirstLanes m) {
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << m.n) - 1), p);
}
TFM_INLINE inline Vec<double> load(const double* p, FirstLanes m) {
  return _mm512_maskz_loadu_pd(static_cast<__mmask8>((1u << m.n) - 1), p);
}
TFM_INLINE inline void store(float* p, Vec<float> v, FirstLanes m) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << m.n) - 1), v);
}
TFM_INLINE inline void store(double* p, Vec<double> v, FirstLanes m) {
  _mm512_mask_storeu_pd(p, static_cast<__mmask8>((1u << m.n) - 1), v);
}
TFM_INLINE inline Vec<float> sqrt(Vec<float> v) { return _mm512_maskz_sqrt_ps(0xFFFF, v); }
TFM_INLINE inline Vec<double> sqrt(Vec<double> v) { return _mm512_maskz_sqrt_pd(0xFF, v); }
#else
// Loads of a tail have no branches: the compiler fuses a product and a sum only where none is
// between them.
#ifdef __AVX2__
TFM_INLINE inline Vec<float> load(const float* p, FirstLanes m) {
  return _mm256_maskload_ps(
      p, _mm256_cmpgt_epi32(_mm256_set1_epi32(m.n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)));
}
TFM_INLINE inline Vec<double> load(const double* p, FirstLanes m) {
  return _mm256_maskload_pd(
      p, _mm256_cmpgt_epi64(_mm256_set1_epi64x(m.n), _mm256_setr_epi64x(0, 1, 2, 3)));
}
#else
template <class T>
requires(!Half<T>) TFM_INLINE inline Vec<T> load(const T* p, FirstLanes m) {
  Vec<T> v{};
  std::memcpy(&v, p, static_cast<std::size_t>(m.n) * sizeof(T));
  return v;
}
#endif
inline void store(float* p, Vec<float> v, FirstLanes m) {
  for (int i = 0; i < m.n; ++i) p[i] = v[i];
}
inline void store(double* p, Vec<double> v, FirstLanes m) {
  for (int i = 0; i < m.n; ++i) p[i] = v[i];
}
#ifdef __AVX2__
TFM_INLINE inline Vec<float> sqrt(Vec<float> v) { return _mm256_sqrt_ps(v); }
TFM_INLINE inline Vec<double> sqrt(Vec<double> v) { return _mm256_sqrt_pd(v); }
#else
inline Vec<float> sqrt(Vec<float> v) {
  for (int i = 0; i < kLanes<float>; ++i) v[i] = std::sqrt(v[i]);
  return v;
}
inline Vec<double> sqrt(Vec<double> v) {
  for (int i = 0; i < kLanes<double>; ++i) v[i] = std::sqrt(v[i]);
  return v;
}
#endif
#endif

// A load that also asks for what a loop reads `ahead` elements later: prefetching by the processor
// ends with a page of 4 KiB. Loops over ranges take kAhead, loops over rows the next row.
inline constexpr std::int64_t kAhead = 512;
template <class T, class Mask>
TFM_INLINE inline Vec<T> load_ahead(const T* p, Mask m, std::int64_t ahead = kAhead) {
  __builtin_prefetch(p + ahead);
  return load(p, m);
}

// v in the selected lanes, `other` in the rest.
template <class T>
TFM_INLINE inline Vec<T> only(Vec<T> v, Full, Accum<T> = 0) {
  return v;
}
template <class T>
TFM_INLINE inline Vec<T> only(Vec<T> v, FirstLanes m, Accum<T> other = 0) {
  return iota<Accum<T>>() < splat(static_cast<Accum<T>>(m.n)) ? v : splat(other);
}

// Calls f(i, lanes) over [0, n) in steps of one vector.
template <class T, class F>
TFM_INLINE inline void each(std::int64_t n, F&& f) {
  std::int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>) f(i, Full{});
  if (i < n) f(i, FirstLanes{static_cast<int>(n - i)});
}

// Calls f(std::true_type) or f(std::false_type). With the choice outside a loop, its body has no
// branches, and the compiler fuses multiply-adds in the same way in body and tail.
template <class F>
void with_flag(bool flag, F&& f) {
  flag ? f(std::true_type{}) : f(std::false_type{});
}

// Sum and maximum of the lanes, always in the same order.
template <class T>
inline Accum<T> sum_of(Vec<T> v) {
  Accum<T> a[kLanes<T>];
  std::memcpy(a, &v, sizeof v);
  for (int w = kLanes<T> / 2; w > 0; w /= 2)
    for (int i = 0; i < w; ++i) a[i] += a[i + w];
  return a[0];
}
template <class T>
TFM_INLINE inline Vec<T> larger(Vec<T> a, Vec<T> b) {
  return a > b ? a : b;
}
template <class T>
inline Accum<T> max_of(Vec<T> v) {
  Accum<T> m = v[0];
  for (int i = 1; i < kLanes<T>; ++i) m = m > v[i] ? m : v[i];
  return m;
}

}  // namespace tfm::kernels
