#pragma once
// Transposition of 16 x 16 32-bit words with AVX-512, for functions compiled for it.
#ifdef __x86_64__
#include <immintrin.h>

namespace tfm::kernels {

// Uses intrinsics with full masks: without masks, GCC 12 warns of undefined lanes.
__attribute__((target("avx512f"))) inline void transpose_words(__m512i (&r)[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_maskz_unpacklo_epi32(0xFFFF, r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_maskz_unpackhi_epi32(0xFFFF, r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      r[4 * i + 2 * j] = _mm512_maskz_unpacklo_epi64(0xFF, t[4 * i + j], t[4 * i + 2 + j]);
      r[4 * i + 2 * j + 1] = _mm512_maskz_unpackhi_epi64(0xFF, t[4 * i + j], t[4 * i + 2 + j]);
    }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512i a = _mm512_maskz_shuffle_i32x4(0xFFFF, r[i], r[4 + i], 0x88),
                  b = _mm512_maskz_shuffle_i32x4(0xFFFF, r[i], r[4 + i], 0xdd),
                  c = _mm512_maskz_shuffle_i32x4(0xFFFF, r[8 + i], r[12 + i], 0x88),
                  d = _mm512_maskz_shuffle_i32x4(0xFFFF, r[8 + i], r[12 + i], 0xdd);
    t[i] = _mm512_maskz_shuffle_i32x4(0xFFFF, a, c, 0x88);
    t[8 + i] = _mm512_maskz_shuffle_i32x4(0xFFFF, a, c, 0xdd);
    t[4 + i] = _mm512_maskz_shuffle_i32x4(0xFFFF, b, d, 0x88);
    t[12 + i] = _mm512_maskz_shuffle_i32x4(0xFFFF, b, d, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = t[i];
}

}  // namespace tfm::kernels
#endif
