#pragma once
// Mathematical functions on vectors.
#include "kernels/cpu/simd.h"

namespace tfm::kernels {

// e^x to about one unit in the last place: x = n ln 2 + r, a polynomial in r, then 2^n. The result
// is 0 for x < -87.3, and x is clamped to 88.3.
TFM_INLINE inline Vec<float> exp(Vec<float> x) {
  constexpr float magic = 12582912.0f;  // 1.5 * 2^23: a sum rounds to an integer in the low bits
#ifdef TFM_AVX512
  const __mmask16 normal = _mm512_cmp_ps_mask(x, splat(-87.3f), _CMP_NLT_UQ);
  x = _mm512_maskz_min_ps(0xFFFF, splat(88.3f), x);  // keeps a NaN
#else
  const auto tiny = x < splat(-87.3f);
  x = x > splat(88.3f) ? splat(88.3f) : x;
  x = tiny ? splat(-87.3f) : x;
#endif
  const Vec<float> shifted = x * 1.44269504f + magic, n = shifted - magic;
  Vec<float> r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  Vec<float> p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + (r + 1.0f);
#ifdef TFM_AVX512
  return _mm512_maskz_scalef_ps(normal, p, n);
#else
  const Ints power = (((Ints)shifted - 0x4B400000) + 127) << 23;
  return tiny ? Vec<float>{} : p * (Vec<float>)power;
#endif
}

// Applies f to every lane. Never inlined: GCC 12 at -O3 loses lanes of neighboring vectors when it
// merges scalar calls with vector code.
template <class T, class F>
[[gnu::noinline]] Vec<T> lanewise_of(Vec<T> v, F f) {
  T lane[kLanes<T>];
  store(lane, v, Full{});
  for (T& x : lane) x = f(x);
  return load(lane, Full{});
}
template <class F>
Vec<double> lanewise(Vec<double> v, F f) {
  return lanewise_of<double>(v, f);
}
template <class F>
Vec<float> lanewise(Vec<float> v, F f) {
  return lanewise_of<float>(v, f);
}
inline Vec<double> exp(Vec<double> x) {
  return lanewise(x, [](double v) { return std::exp(v); });
}

}  // namespace tfm::kernels
