#pragma once
// The soft cap x -> c tanh(x / c) of scores and logits (Gemma Team 2024, "Gemma 2", 2.1), whose
// slope is 1 - tanh^2.
#include "kernels/cpu/simd_math.h"

namespace tfm::kernels {

// tanh to about three units in the last place: a polynomial in x^2 next to 0 (Chebyshev fit of
// (tanh(x) / x - 1) / x^2), elsewhere by an exponential.
TFM_INLINE inline Vec<float> softcap_tanh(Vec<float> x) {
  const Vec<float> size = x < Vec<float>{} ? -x : x, square = x * x;
  Vec<float> p = square * -0.00575415616f + 0.0206979328f;
  p = p * square - 0.0537637994f;
  p = p * square + 0.133318335f;
  p = p * square - 0.333333015f;
  const Vec<float> small = x + x * (square * p), large = 1.0f - 2.0f / (exp(size * 2.0f) + 1.0f);
  return size < splat(0.63f) ? small : x < Vec<float>{} ? -large : large;
}
inline Vec<double> softcap_tanh(Vec<double> x) {
  return lanewise(x, [](double v) { return std::tanh(v); });
}

// Scores before the bias in place of the products of a row, and in `slopes`, unless it is null,
// what their gradients are to be multiplied by.
template <class T>
void cap_products(T* row, std::int64_t n, T scale, T cap, T* slopes = nullptr) {
  const T inverse = scale / cap;
  with_flag(slopes, [&](auto keep) {
    each<T>(n, [&](std::int64_t i, auto m) TFM_INLINE {
      const Vec<T> t = softcap_tanh(load(row + i, m) * inverse);
      store(row + i, t * cap, m);
      if constexpr (keep()) store(slopes + i, T{1} - t * t, m);
    });
  });
}

}  // namespace tfm::kernels
