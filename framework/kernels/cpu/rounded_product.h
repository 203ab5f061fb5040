#pragma once
// Products of small float matrices in a cache whose factors are rounded to bf16, with float sums,
// by AMX or AVX512-BF16, in the calling thread. Requires multiplies_natively<bf16>().
#include <cstdint>

namespace tfm::kernels {

// c (m, n) = alpha a b + beta c, with element (i, t) of a at a[i row + t term], where one of the
// strides is 1. Rows of a along its stride of 1, of b and of c have memory, with any content, up to
// a multiple of 16. The order of a sum depends on k alone.
void rounded_product(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
                     std::int64_t row, std::int64_t term, const float* b, std::int64_t ldb,
                     float beta, float* c, std::int64_t ldc);

}  // namespace tfm::kernels
