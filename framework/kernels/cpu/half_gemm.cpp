#include "kernels/cpu/half_gemm.h"

#include <cstdlib>
#include <type_traits>

#include "kernels/cpu/amx_gemm.h"
#include "kernels/cpu/dot_gemm.h"
#include "kernels/cpu/float_gemm.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/onednn_isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/row_gemm.h"
#include "kernels/cpu/simd_half.h"

namespace tfm::kernels {
namespace {

constexpr std::int64_t kBlock = 1024;
// Terms of the floats that a product by conversion keeps: up to 16 MiB of each factor.
constexpr std::int64_t kDepth = 4096;
// Columns of one primitive: some implementations allocate C in float.
constexpr std::int64_t kPanel = 4096;

template <class From, class To>
void convert_rows(cpu::Stream& stream, const From* from, std::int64_t from_stride, To* to,
                  std::int64_t to_stride, std::int64_t rows, std::int64_t cols) {
  parallel(stream, rows, rows * cols,
           [&](std::int64_t r) { convert_row(from + r * from_stride, to + r * to_stride, cols); });
}

// Intel processors with AVX512-FP16 multiply bf16 by AVX512-BF16 at half their rate in fp32. They
// have AMX, too, but a hypervisor may hide it.
bool has_slow_dots() {
#ifdef __x86_64__
  const bool asked_for = std::getenv("ONEDNN_MAX_CPU_ISA") || std::getenv("DNNL_MAX_CPU_ISA");
  return !asked_for && __builtin_cpu_is("intel") && __builtin_cpu_supports("avx512fp16");
#else
  return false;
#endif
}

template <class T, class C>
void converting(cpu::Stream& stream, const GemmArgs<T, C>& g) {
  has_float_gemm() ? float_gemm(stream, g) : half_gemm_by_conversion(stream, g);
}

template <class T, class C>
void without_library(cpu::Stream& stream, const GemmArgs<T, C>& g) {
  if constexpr (std::is_same_v<T, bf16>)
    if (g.k % 2 == 0) return dot_gemm(stream, g);
  converting(stream, g);
}

}  // namespace

template <class T>
bool multiplies_natively() {
  static const bool native = [] {
    if constexpr (std::is_same_v<T, bf16>)
      return onednn_has(dnnl::cpu_isa::avx512_core_bf16) && (has_amx() || !has_slow_dots());
#if DNNL_VERSION_MAJOR >= 3
    return onednn_has(dnnl::cpu_isa::avx512_core_fp16);
#else
    return false;
#endif
  }();
  return native;
}

template <class T, class C>
void half_gemm(cpu::Stream& stream, const GemmArgs<T, C>& g) {
  const bool native = multiplies_natively<T>();
  if (row_gemm_takes(g, native ? kFewHalfRows : kFewRows)) return row_gemm(stream, g);
  if (!native) return converting(stream, g);
  if constexpr (std::is_same_v<T, bf16>) {
    if (has_amx()) return amx_gemm(stream, g);
    if (dot_gemm_takes(g)) return dot_gemm(stream, g);
  }
  cpu::Stream here{usable_threads(stream)};
  for (std::int64_t column = 0; column < g.n; column += kPanel) {
    GemmArgs<T, C> panel = g;
    panel.n = std::min(kPanel, g.n - column);
    panel.b += g.transpose_b ? column * g.ldb : column;
    panel.c += column;
    if (g.bias) panel.bias += column;
    if (!matmul(panel, here.threads)) without_library(here, panel);
  }
}

// Blocks of C, their rows of op(A) and columns of op(B) as floats.
template <class T, class C>
void half_gemm_by_conversion(cpu::Stream& stream, const GemmArgs<T, C>& g) {
  cpu::Stream here{usable_threads(stream)};
  const std::int64_t most_m = std::min(g.m, kBlock), most_n = std::min(g.n, kBlock),
                     most_k = std::min(g.k, kDepth);
  float *a = scratch<float, struct BlockA>(most_m * most_k),
        *b = scratch<float, struct BlockB>(most_n * most_k),
        *c = scratch<float, struct BlockC>(most_m * most_n);
  const auto multiply = [&](std::int64_t row, std::int64_t m, std::int64_t col, std::int64_t n,
                            float* out, std::int64_t ldc) {
    for (std::int64_t term = 0; term < g.k; term += kDepth) {
      const std::int64_t k = std::min(kDepth, g.k - term);
      const auto stored = [&](const T* x, std::int64_t ld, bool along_k, std::int64_t first,
                              std::int64_t count, float* to) {
        along_k ? convert_rows(here, x + first * ld + term, ld, to, k, count, k)
                : convert_rows(here, x + term * ld + first, ld, to, count, k, count);
      };
      if (col == 0 || g.k > kDepth) stored(g.a, g.lda, !g.transpose_a, row, m, a);
      stored(g.b, g.ldb, g.transpose_b, col, n, b);
      gemm(here, GemmArgs<float>{.transpose_a = g.transpose_a,
                                 .transpose_b = g.transpose_b,
                                 .m = m,
                                 .n = n,
                                 .k = k,
                                 .alpha = g.alpha,
                                 .a = a,
                                 .lda = g.transpose_a ? m : k,
                                 .b = b,
                                 .ldb = g.transpose_b ? k : n,
                                 .beta = term == 0 ? g.beta : 1,
                                 .c = out,
                                 .ldc = ldc});
    }
  };
  for (std::int64_t row = 0; row < g.m; row += kBlock) {
    const std::int64_t m = std::min(kBlock, g.m - row);
    for (std::int64_t col = 0; col < g.n; col += kBlock) {
      const std::int64_t n = std::min(kBlock, g.n - col);
      C* out = g.c + row * g.ldc + col;
      if constexpr (std::is_same_v<C, float>) {
        multiply(row, m, col, n, out, g.ldc);
      } else {
        if (g.beta != 0) convert_rows(here, out, g.ldc, c, n, m, n);
        multiply(row, m, col, n, c, n);
        parallel(here, m, m * n, [&](std::int64_t r) {
          each<float>(n, [&](std::int64_t i, auto lanes) TFM_INLINE {
            const Vec<float> v = load(c + r * n + i, lanes);
            store(out + r * g.ldc + i, g.bias ? v + load(g.bias + col + i, lanes) : v, lanes);
          });
        });
      }
    }
  }
}

#define TFM_INSTANTIATE(T, C)                                   \
  template void half_gemm(cpu::Stream&, const GemmArgs<T, C>&); \
  template void half_gemm_by_conversion(cpu::Stream&, const GemmArgs<T, C>&);
TFM_INSTANTIATE(bf16, bf16)
TFM_INSTANTIATE(bf16, float)
TFM_INSTANTIATE(f16, f16)
TFM_INSTANTIATE(f16, float)
template bool multiplies_natively<bf16>();
template bool multiplies_natively<f16>();

}  // namespace tfm::kernels
