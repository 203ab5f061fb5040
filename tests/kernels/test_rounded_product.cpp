// Products of floats rounded to bf16 against float64.
#include <limits>

#include "kernels/cpu/half_gemm.h"
#include "kernels/cpu/rounded_product.h"
#include "support/kernel_case.h"

namespace tfm::test {
namespace {

float rounded(double x) { return static_cast<float>(bf16(static_cast<float>(x))); }

TEST(RoundedProduct, RoundsFactorsAndHoldsSumsInFloat) {
  if (!kernels::multiplies_natively<bf16>()) GTEST_SKIP() << "this processor has no bf16 products";
  constexpr float kUnset = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [m, n, k] : {std::array{1, 1, 1},
                                {64, 64, 64},
                                {17, 33, 31},
                                {5, 70, 65},
                                {48, 16, 3},
                                {64, 9, 40},
                                {33, 129, 128}})
    for (const bool transposed : {false, true})
      for (const auto& [alpha, beta] : {std::pair{1.0f, 0.0f}, {-1.0f, 1.0f}, {1.0f, 0.25f}}) {
        const Values a = random_values(m * k, 1), b = random_values(k * n, 2),
                     before = random_values(m * n, 3);
        const auto pitch = [](std::int64_t cols) { return round_up(cols, 16) + 16; };
        const std::int64_t lda = pitch(transposed ? m : k), ldb = pitch(n), ldc = pitch(n);
        std::vector<float> left((transposed ? k : m) * lda, kUnset), right(k * ldb, kUnset),
            c(m * ldc, kUnset);
        for (int i = 0; i < m; ++i)
          for (int t = 0; t < k; ++t)
            left[transposed ? t * lda + i : i * lda + t] = static_cast<float>(a[i * k + t]);
        for (int t = 0; t < k; ++t)
          for (int j = 0; j < n; ++j) right[t * ldb + j] = static_cast<float>(b[t * n + j]);
        Values expected(m * n), got(m * n);
        for (int i = 0; i < m; ++i)
          for (int j = 0; j < n; ++j) {
            if (beta != 0) c[i * ldc + j] = static_cast<float>(before[i * n + j]);
            double sum = 0;
            for (int t = 0; t < k; ++t)
              sum += rounded(a[i * k + t]) * double{rounded(b[t * n + j])};
            expected[i * n + j] = alpha * sum + beta * before[i * n + j];
          }
        kernels::rounded_product(m, n, k, alpha, left.data(), transposed ? 1 : lda,
                                 transposed ? lda : 1, right.data(), ldb, beta, c.data(), ldc);
        for (int i = 0; i < m; ++i)
          for (int j = 0; j < n; ++j) got[i * n + j] = c[i * ldc + j];
        expect_close(got, expected, tolerance<float>(2, k), "product");
      }
}

}  // namespace
}  // namespace tfm::test
