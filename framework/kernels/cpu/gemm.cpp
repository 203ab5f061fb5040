#include "kernels/gemm.h"

#include <dnnl.h>

#include "kernels/cpu/half_gemm.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/onednn_isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/row_gemm.h"
#include "kernels/cpu/simd_half.h"
#include "kernels/elementwise.h"

namespace tfm::kernels {
namespace {

constexpr int kTileRows = 4;
constexpr std::int64_t kBlockRows = 128, kBlockK = 512;

std::string describe(const GemmArgs<float>& g) {
  return "m " + std::to_string(g.m) + ", n " + std::to_string(g.n) + ", k " + std::to_string(g.k) +
         ", leading dimensions " + std::to_string(g.lda) + ", " + std::to_string(g.ldb) + ", " +
         std::to_string(g.ldc);
}

// With AVX-512, oneDNN's sgemm packs no factor where 1/m + 1/n is 0.00196 or more; those of linear
// layers it packs on one thread. Where it does not, matmul is faster, except for few terms.
bool is_faster_by_matmul(const GemmArgs<float>& g, int threads) {
  static const bool has_avx512 = onednn_has(dnnl::cpu_isa::avx512_core);
  const double m = static_cast<double>(g.m), n = static_cast<double>(g.n);
  if (!has_avx512 || g.k < 512 || 1 / m + 1 / n < 0.00196) return false;
  if (g.transpose_a) return !g.transpose_b && g.m >= 1024 && g.n >= 256;
  return g.transpose_b && g.m > kFewRows && g.n >= 128 && threads > 1;
}

// Returns whether the bias is added.
bool product(cpu::Stream& stream, const GemmArgs<float>& g) {
  if (row_gemm_takes(g, kFewRows)) {
    row_gemm(stream, g);
    return true;
  }
  const int threads = usable_threads(stream);
  if (is_faster_by_matmul(g, threads) && matmul(g, threads)) return true;
  const TeamSize team(threads);
  const dnnl_status_t status =
      dnnl_sgemm(g.transpose_a ? 'T' : 'N', g.transpose_b ? 'T' : 'N', g.m, g.n, g.k, g.alpha, g.a,
                 g.lda, g.b, g.ldb, g.beta, g.c, g.ldc);
  TFM_CHECK(status == dnnl_success,
            "oneDNN failed a matrix product with status " + std::to_string(status) + ": " +
                describe(g) +
                "; a leading dimension must be at least the row length of its stored matrix");
  return false;
}

// C rows [row, row + rows) x one panel of columns, k values of a packed panel of B; `first`: beta
// and no earlier part of k.
template <class T>
struct Panel {
  const GemmArgs<T>& g;
  const T* packed;  // (k, 2 vectors)
  std::int64_t column, width, k_begin, k;

  template <int Rows>
  void tile(std::int64_t row) const {
    constexpr int L = kLanes<T>;
    Vec<T> low[Rows] = {}, high[Rows] = {};
    const std::int64_t down = g.transpose_a ? 1 : g.lda, along = g.transpose_a ? g.lda : 1;
    const T* a = g.a + row * down + k_begin * along;
    for (std::int64_t p = 0; p < k; ++p, a += along) {
      const Vec<T> b0 = load(packed + p * 2 * L, Full{}), b1 = load(packed + p * 2 * L + L, Full{});
#pragma GCC unroll 4
      for (int i = 0; i < Rows; ++i) {
        low[i] += b0 * a[i * down];
        high[i] += b1 * a[i * down];
      }
    }
    T line[2 * L];
    for (int i = 0; i < Rows; ++i) {
      store(line, low[i], Full{});
      store(line + L, high[i], Full{});
      T* c = g.c + (row + i) * g.ldc + column;
      for (std::int64_t j = 0; j < 2 * L && j < width; ++j) {
        const T before = k_begin ? c[j] : g.beta == T{0} ? T{0} : g.beta * c[j];
        c[j] = before + g.alpha * line[j];
      }
    }
  }

  void rows(std::int64_t begin, std::int64_t end) const {
    for (; begin + kTileRows <= end; begin += kTileRows) tile<kTileRows>(begin);
    for (; begin < end; ++begin) tile<1>(begin);
  }
};

template <class T>
void pack(const GemmArgs<T>& g, std::int64_t column, std::int64_t width, std::int64_t k_begin,
          std::int64_t k, T* out) {
  constexpr std::int64_t W = 2 * kLanes<T>;
  for (std::int64_t p = 0; p < k; ++p)
    for (std::int64_t j = 0; j < W; ++j) {
      const std::int64_t r = k_begin + p, c = column + j;
      out[p * W + j] = j >= width ? T{0} : g.transpose_b ? g.b[c * g.ldb + r] : g.b[r * g.ldb + c];
    }
}

bool product(cpu::Stream& stream, const GemmArgs<double>& g) {
  constexpr std::int64_t W = 2 * kLanes<double>;
  const std::int64_t panels = ceil_div(g.n, W), blocks = ceil_div(g.m, kBlockRows);
  auto block = [&](std::int64_t task) {
    const std::int64_t row = task / panels * kBlockRows, column = task % panels * W,
                       width = std::min(W, g.n - column);
    double* packed = scratch<double, struct PackedPanel>(kBlockK * W);
    for (std::int64_t k = 0; k < g.k; k += kBlockK) {
      const std::int64_t depth = std::min(kBlockK, g.k - k);
      pack(g, column, width, k, depth, packed);
      Panel<double>{g, packed, column, width, k, depth}.rows(row, std::min(g.m, row + kBlockRows));
    }
  };
  cpu::Stream here{usable_threads(stream)};
  parallel(here, panels * blocks, g.m * g.n * g.k, block);
  return false;
}

template <class T>
void scale_rows(const GemmArgs<T>& g) {  // k = 0: an empty sum
  for (std::int64_t r = 0; r < g.m; ++r)
    for (std::int64_t c = 0; c < g.n; ++c)
      g.c[r * g.ldc + c] = g.beta == T{0} ? T{0} : g.beta * g.c[r * g.ldc + c];
}

template <class T>
void add_row(cpu::Stream& stream, const GemmArgs<T>& g) {
  cpu::Stream here{usable_threads(stream)};
  parallel(here, g.m, g.m * g.n, [&](std::int64_t r) {
    T* c = g.c + r * g.ldc;
    each<T>(g.n, [&](std::int64_t i, auto m)
                     TFM_INLINE { store(c + i, load(c + i, m) + load(g.bias + i, m), m); });
  });
}

}  // namespace

template <class T, class C>
void gemm(cpu::Stream& stream, const GemmArgs<T, C>& g) {
  if (g.m <= 0 || g.n <= 0) return;
  TFM_CHECK(!g.bias || g.beta == Accum<T>{0}, "a bias needs beta 0");
  if constexpr (sizeof(T) == 2) {
    TFM_CHECK(g.k > 0 && (!g.bias || sizeof(C) == 2),
              "16-bit factors need terms, and a bias a 16-bit product");
    half_gemm(stream, g);
  } else {
    if (g.k > 0 && product(stream, g)) return;
    if (g.k <= 0) scale_rows(g);
    if (g.bias) add_row(stream, g);
  }
}

template <class T>
void linear_gradients(cpu::Stream& stream, const LinearGradientsArgs<T>& a) {
  gemm(stream, a.product());
  if (a.db) column_sum(stream, ColumnSumArgs<T>{a.rows, a.out, a.out, a.dy, a.db, a.accumulate_db});
}

template <class T>
void gemm_activation_backward(cpu::Stream& stream, const GemmActivationBackwardArgs<T>& a) {
  gemm(stream, a.product);
  activation_backward(stream, a.activation);
}

#define TFM_INSTANTIATE(T) \
  template void gemm_activation_backward(cpu::Stream&, const GemmActivationBackwardArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)
template void linear_gradients(cpu::Stream&, const LinearGradientsArgs<float>&);
template void linear_gradients(cpu::Stream&, const LinearGradientsArgs<double>&);
template void linear_gradients(cpu::Stream&, const LinearGradientsArgs<bf16>&);
template void linear_gradients(cpu::Stream&, const LinearGradientsArgs<f16>&);
template void gemm(cpu::Stream&, const GemmArgs<float>&);
template void gemm(cpu::Stream&, const GemmArgs<double>&);
template void gemm(cpu::Stream&, const GemmArgs<bf16>&);
template void gemm(cpu::Stream&, const GemmArgs<f16>&);
template void gemm(cpu::Stream&, const GemmArgs<bf16, float>&);
template void gemm(cpu::Stream&, const GemmArgs<f16, float>&);

}  // namespace tfm::kernels
