#include "kernels/cpu/softmax_bf16.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/error.h"
#include "kernels/cpu/dot_product.h"

namespace tfm::kernels {
#ifdef __x86_64__
namespace {

constexpr std::int64_t kLanes16 = 16;
constexpr float kLog2E = std::numbers::log2e_v<float>, kLn2 = std::numbers::ln2_v<float>;
constexpr __mmask16 kAll = 0xFFFF;

// 2^x, 0 below 2^-126, within 3e-7 of it (minimax polynomial for [-1/2, 1/2]).
TFM_DOT_TARGET inline __m512 exp2(__m512 x, __mmask16 lanes) {
  const __mmask16 normal =
      _mm512_mask_cmp_ps_mask(lanes, x, _mm512_set1_ps(-126), _CMP_NLT_UQ);  // also where NaN
  const __m512 n = _mm512_maskz_roundscale_ps(kAll, x, _MM_FROUND_TO_NEAREST_INT), r = x - n;
  __m512 p = r * 0.00132764725f + 0.00967554096f;
  p = p * r + 0.0555071309f;
  p = p * r + 0.240221202f;
  p = p * r + 0.693146944f;
  p = p * r + 1.0f;
  return _mm512_maskz_scalef_ps(normal, p, n);
}

TFM_DOT_TARGET inline void store_rounded(bf16* to, __m512 v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), (__m256i)_mm512_cvtneps_pbh(v));
}

// Groups of N lanes change places with their neighbors. GCC 12 warns of undefined lanes in its own
// reductions.
template <int N>
TFM_DOT_TARGET inline __m512 exchange(__m512 v) {
  if constexpr (N == 8)
    return _mm512_maskz_shuffle_f32x4(kAll, v, v, 0x4E);
  else if constexpr (N == 4)
    return _mm512_maskz_shuffle_f32x4(kAll, v, v, 0xB1);
  else
    return _mm512_maskz_permute_ps(kAll, v, N == 2 ? 0x4E : 0xB1);
}
TFM_DOT_TARGET inline float sum_of(__m512 v) {
  v += exchange<8>(v);
  v += exchange<4>(v);
  v += exchange<2>(v);
  v += exchange<1>(v);
  return v[0];
}
TFM_DOT_TARGET inline float largest_of(__m512 v) {
  v = _mm512_maskz_max_ps(kAll, v, exchange<8>(v));
  v = _mm512_maskz_max_ps(kAll, v, exchange<4>(v));
  v = _mm512_maskz_max_ps(kAll, v, exchange<2>(v));
  v = _mm512_maskz_max_ps(kAll, v, exchange<1>(v));
  return v[0];
}

// f(i, lanes) over [0, n) in steps of a vector.
template <class F>
TFM_DOT_TARGET inline void each_vector(std::int64_t n, F&& f) {
  std::int64_t i = 0;
  for (; i + kLanes16 <= n; i += kLanes16) f(i, kAll);
  if (i < n) f(i, static_cast<__mmask16>((1u << (n - i)) - 1));
}

// Scores in powers of two.
struct Scores {
  const ProductRow& row;
  float scale = row.scale * kLog2E;
  TFM_DOT_TARGET __m512 operator()(std::int64_t i, __mmask16 lanes, float base) const {
    const __m512 score = _mm512_maskz_loadu_ps(lanes, row.products + i) * scale - base;
    return row.added ? score + _mm512_maskz_loadu_ps(lanes, row.added + i) * kLog2E : score;
  }
};

void zero_after(const ProductRow& row, bf16* to) {
  std::fill(to + round_up(row.visible, kLanes16), to + row.width, bf16{});
}

}  // namespace

TFM_DOT_TARGET float softmax_row(const ProductRow& row, bf16* to, float& lse) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  const Scores scores{row};
  __m512 top = _mm512_set1_ps(kLowest), sum = _mm512_setzero_ps();
  each_vector(row.visible, [&](std::int64_t i, __mmask16 lanes) TFM_DOT_TARGET {
    top = _mm512_mask_max_ps(top, lanes, top, scores(i, lanes, 0));
  });
  const float max = largest_of(top);
  each_vector(row.visible, [&](std::int64_t i, __mmask16 lanes) TFM_DOT_TARGET {
    __m512 e = exp2(scores(i, lanes, max), lanes);
    sum += e;
    if (row.factors) e *= _mm512_maskz_loadu_ps(lanes, row.factors + i);
    store_rounded(to + i, e);
  });
  zero_after(row, to);
  const float total = sum_of(sum);
  lse = row.visible ? max * kLn2 + std::log(total) : kLowest;
  return total;
}

TFM_DOT_TARGET void softmax_gradient_row(const ProductRow& row, float lse, const float* delta,
                                         float* gradients, bf16* weights, bf16* score_gradients,
                                         float* bias_gradients) {
  const Scores scores{row};
  const float base = lse * kLog2E;
  __m512 sum = _mm512_setzero_ps();
  each_vector(row.visible, [&](std::int64_t i, __mmask16 lanes) TFM_DOT_TARGET {
    // At most 1, although lse is rounded and scores may be large; keeps a NaN.
    const __m512 p =
        exp2(_mm512_maskz_min_ps(kAll, _mm512_setzero_ps(), scores(i, lanes, base)), lanes);
    __m512 g = _mm512_maskz_loadu_ps(lanes, gradients + i);
    if (row.factors) {
      g *= _mm512_maskz_loadu_ps(lanes, row.factors + i);
      _mm512_mask_storeu_ps(gradients + i, lanes, g);
    }
    sum += p * g;
    _mm512_mask_storeu_ps(row.products + i, lanes, p);
  });
  const __m512 mean = _mm512_set1_ps(delta ? *delta : sum_of(sum));
  each_vector(row.visible, [&](std::int64_t i, __mmask16 lanes) TFM_DOT_TARGET {
    __m512 p = _mm512_maskz_loadu_ps(lanes, row.products + i);
    __m512 g = p * (_mm512_maskz_loadu_ps(lanes, gradients + i) - mean);
    if (bias_gradients)
      _mm512_mask_storeu_ps(bias_gradients + i, lanes,
                            _mm512_maskz_loadu_ps(lanes, bias_gradients + i) + g);
    if (row.slopes) g *= _mm512_maskz_loadu_ps(lanes, row.slopes + i);
    store_rounded(score_gradients + i, g);
    if (row.factors) p *= _mm512_maskz_loadu_ps(lanes, row.factors + i);
    store_rounded(weights + i, p);
  });
  zero_after(row, weights);
  zero_after(row, score_gradients);
}

#else
float softmax_row(const ProductRow&, bf16*, float&) {
  internal_error("this processor has no AVX512-BF16");
}
void softmax_gradient_row(const ProductRow&, float, const float*, float*, bf16*, bf16*, float*) {
  internal_error("this processor has no AVX512-BF16");
}
#endif

}  // namespace tfm::kernels
