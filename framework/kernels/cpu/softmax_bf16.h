#pragma once
// Rows of attention's softmax between products of bf16 (dot_product.h): computed in float, rounded
// once for the next product. Only where multiplies_natively<bf16>().
#include <cstdint>

#include "core/half.h"

namespace tfm::kernels {

// Products of a query with `visible` keys, whose scores are product * scale + added. Results have
// `width` columns, whole vectors of 16, with zeros from `visible` on.
struct ProductRow {
  float* products;
  std::int64_t visible, width;
  float scale;
  const float *added, *factors;  // of dropout, for the weights; null: none
};

// exp(score - max) * factor. Returns the sum of the exponentials, and `lse`, the logarithm of that
// of exp(score).
float softmax_row(const ProductRow&, bf16* to, float& lse);

// Rounded weights exp(score - lse) * factor, and from their `gradients`, which are overwritten, the
// rounded gradients of the scores, which are also added to `bias_gradients` where it is given.
// delta: the sum of weight * gradient, equal to output * its gradient (null: computed, because an
// output in bf16 is rounded).
void softmax_gradient_row(const ProductRow&, float lse, const float* delta, float* gradients,
                          bf16* weights, bf16* score_gradients, float* bias_gradients);

}  // namespace tfm::kernels
