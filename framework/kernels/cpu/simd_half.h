#pragma once
// Loads and stores of 16-bit elements, which are computed as vectors of floats.
#include "kernels/cpu/simd.h"

namespace tfm::kernels {

#define TFM_FLOATS(f) f(float) f(double) f(bf16) f(f16)

typedef std::uint16_t Shorts __attribute__((vector_size(kVectorBytes / 2)));
typedef std::uint32_t Bits __attribute__((vector_size(kVectorBytes)));
typedef std::int16_t SignedShorts __attribute__((vector_size(kVectorBytes / 2)));
// Intrinsics, because GCC 12 converts vectors in halves on x86-64 and lane by lane on Arm.
#if defined(TFM_AVX512)
TFM_INLINE inline Bits extend(Shorts bits) {
  return (Bits)_mm512_maskz_cvtepu16_epi32(0xFFFF, (__m256i)bits);
}
TFM_INLINE inline Ints extend(SignedShorts bits) {
  return (Ints)_mm512_maskz_cvtepi16_epi32(0xFFFF, (__m256i)bits);
}
TFM_INLINE inline Shorts truncate(Bits bits) {
  return (Shorts)_mm512_maskz_cvtepi32_epi16(0xFFFF, (__m512i)bits);
}
#else
#if defined(__AVX2__)
TFM_INLINE inline Bits extend(Shorts bits) { return (Bits)_mm256_cvtepu16_epi32((__m128i)bits); }
TFM_INLINE inline Ints extend(SignedShorts bits) {
  return (Ints)_mm256_cvtepi16_epi32((__m128i)bits);
}
#elif defined(__ARM_NEON)
TFM_INLINE inline Bits extend(Shorts bits) { return (Bits)vmovl_u16((uint16x4_t)bits); }
TFM_INLINE inline Ints extend(SignedShorts bits) { return (Ints)vmovl_s16((int16x4_t)bits); }
#else
TFM_INLINE inline Bits extend(Shorts bits) { return __builtin_convertvector(bits, Bits); }
TFM_INLINE inline Ints extend(SignedShorts bits) { return __builtin_convertvector(bits, Ints); }
#endif
TFM_INLINE inline Shorts truncate(Bits bits) { return __builtin_convertvector(bits, Shorts); }
#endif
TFM_INLINE inline Vec<float> widen(const bf16*, Shorts bits) {
  return (Vec<float>)(extend(bits) << 16);
}
TFM_INLINE inline Shorts upper_halves(Bits bits) {
#ifdef TFM_AVX512  // one instruction instead of three
  typedef std::uint16_t Halves __attribute__((vector_size(kVectorBytes)));
  const auto halves = (Halves)bits;
  return __builtin_shufflevector(halves, halves, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27,
                                 29, 31);
#else
  return truncate(bits >> 16);
#endif
}
TFM_INLINE inline Shorts narrow(const bf16*, Vec<float> v) {
  const Bits u = (Bits)v, rounded = u + 0x7FFFu + (u >> 16 & 1u);
  return upper_halves(v != v ? u | 0x400000u : rounded);
}
#if defined(TFM_AVX512)
TFM_INLINE inline Vec<float> widen(const f16*, Shorts bits) {
  return _mm512_maskz_cvtph_ps(0xFFFF, (__m256i)bits);
}
TFM_INLINE inline Shorts narrow(const f16*, Vec<float> v) {
  return (Shorts)_mm512_maskz_cvtps_ph(0xFFFF, v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#elif defined(__F16C__) && defined(__AVX2__)
TFM_INLINE inline Vec<float> widen(const f16*, Shorts bits) {
  return _mm256_cvtph_ps((__m128i)bits);
}
TFM_INLINE inline Shorts narrow(const f16*, Vec<float> v) {
  return (Shorts)_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#elif defined(__ARM_NEON)
TFM_INLINE inline Vec<float> widen(const f16*, Shorts bits) {
  return (Vec<float>)vcvt_f32_f16((float16x4_t)bits);
}
TFM_INLINE inline Shorts narrow(const f16*, Vec<float> v) {
  return (Shorts)vcvt_f16_f32((float32x4_t)v);
}
#else
inline Vec<float> widen(const f16*, Shorts bits) {
  Vec<float> v;
  for (int i = 0; i < kLanes<float>; ++i) v[i] = std::bit_cast<f16>(std::uint16_t{bits[i]});
  return v;
}
inline Shorts narrow(const f16*, Vec<float> v) {
  Shorts bits;
  for (int i = 0; i < kLanes<float>; ++i) bits[i] = f16(v[i]).bits;
  return bits;
}
#endif
TFM_INLINE inline Shorts load_bits(const void* p, Full) {
  Shorts bits;
  std::memcpy(&bits, p, sizeof bits);
  return bits;
}
TFM_INLINE inline void store_bits(void* p, Shorts bits, Full) {
  std::memcpy(p, &bits, sizeof bits);
}
#ifdef TFM_AVX512
TFM_INLINE inline Shorts load_bits(const void* p, FirstLanes m) {
  return (Shorts)_mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << m.n) - 1), p);
}
TFM_INLINE inline void store_bits(void* p, Shorts bits, FirstLanes m) {
  _mm256_mask_storeu_epi16(p, static_cast<__mmask16>((1u << m.n) - 1), (__m256i)bits);
}
#else
TFM_INLINE inline Shorts load_bits(const void* p, FirstLanes m) {
  Shorts bits{};
  std::memcpy(&bits, p, static_cast<std::size_t>(m.n) * 2);
  return bits;
}
TFM_INLINE inline void store_bits(void* p, Shorts bits, FirstLanes m) {
  std::memcpy(p, &bits, static_cast<std::size_t>(m.n) * 2);
}
#endif
template <Half T, class Mask>
TFM_INLINE inline Vec<float> load(const T* p, Mask m) {
  return widen(p, load_bits(p, m));
}
template <Half T, class Mask>
TFM_INLINE inline void store(T* p, Vec<float> v, Mask m) {
  store_bits(p, narrow(p, v), m);
}

template <class From, class To>
void convert_row(const From* from, To* to, std::int64_t n) {
  each<float>(n, [&](std::int64_t i, auto m) TFM_INLINE { store(to + i, load(from + i, m), m); });
}

}  // namespace tfm::kernels
