#pragma once
// Rows of attention's softmax between bf16 products (dot_product.h). They are computed in float and
// rounded once for the next product. Requires multiplies_natively<bf16>().
#include <cstdint>

#include "core/half.h"

namespace tfm::kernels {

// Products of a query with `visible` keys; scores are product * scale + added. Results have `width`
// columns, a multiple of 16, with zeros from `visible` on.
struct ProductRow {
  float* products;
  std::int64_t visible, width;
  float scale;
  const float *added, *factors;   // added to scores; dropout factors of weights; null: none
  const float* slopes = nullptr;  // factors of the gradients of scores; null: none
};

// Writes exp(score - max) * factor to `to`. Returns the sum of exp(score - max); `lse` is the
// logarithm of the sum of exp(score).
float softmax_row(const ProductRow&, bf16* to, float& lse);

// Writes the rounded weights exp(score - lse) * factor and, from the weights' `gradients`, which it
// overwrites, the rounded gradients of the scores; these are also added to `bias_gradients` if it
// is not null. delta: sum of weight * gradient, which equals output * gradient of the output; if
// null, it is computed, since a bf16 output is rounded.
void softmax_gradient_row(const ProductRow&, float lse, const float* delta, float* gradients,
                          bf16* weights, bf16* score_gradients, float* bias_gradients);

}  // namespace tfm::kernels
