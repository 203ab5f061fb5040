#include "kernels/cpu/row_gemm.h"

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_half.h"

namespace tfm::kernels {
namespace {

constexpr int kColumns = 4;  // of C that are summed together, as up to 4 rows are

template <class T, class C>
class RowGemm {
 public:
  RowGemm(const GemmArgs<T, C>& g, const float* a) : g_(g), a_(a) {}

  void columns(std::int64_t column) const {
    if (column + kColumns <= g_.n)
      rows<kColumns>(column);
    else
      for (; column < g_.n; ++column) rows<1>(column);
  }

 private:
  template <int Columns>
  void rows(std::int64_t column) const {
    std::int64_t row = 0;
    const auto some = [&]<int Rows>() {
      for (; row + Rows <= g_.m; row += Rows) block<Rows, Columns>(row, column);
    };
    some.template operator()<4>();
    some.template operator()<2>();
    some.template operator()<1>();
  }

  template <int Rows, int Columns>
  void block(std::int64_t row, std::int64_t column) const {
    Vec<float> sum[Rows][Columns] = {};
    const float* a = a_ + row * g_.k;
    const T* b = g_.b + column * g_.ldb;
    each<float>(g_.k, [&](std::int64_t t, auto lanes) TFM_INLINE {
      Vec<float> left[Rows];
#pragma GCC unroll 4
      for (int i = 0; i < Rows; ++i) left[i] = load(a + i * g_.k + t, lanes);
#pragma GCC unroll 4
      for (int j = 0; j < Columns; ++j) {
        const Vec<float> right = load_ahead(b + j * g_.ldb + t, lanes, kColumns * g_.ldb);
#pragma GCC unroll 4
        for (int i = 0; i < Rows; ++i) sum[i][j] += left[i] * right;
      }
    });
    for (int i = 0; i < Rows; ++i)
      for (int j = 0; j < Columns; ++j) {
        C& c = g_.c[(row + i) * g_.ldc + column + j];
        float v = g_.alpha * sum_of<float>(sum[i][j]);
        if (g_.bias) v += static_cast<float>(g_.bias[column + j]);
        if (g_.beta != 0) v += g_.beta * static_cast<float>(c);
        c = C(v);
      }
  }

  const GemmArgs<T, C>& g_;
  const float* a_;  // (m, k)
};

}  // namespace

template <class T, class C>
void row_gemm(cpu::Stream& stream, const GemmArgs<T, C>& g) {
  float* const a = scratch<float, struct FewRows>(g.m * g.k);
  for (std::int64_t r = 0; r < g.m; ++r) convert_row(g.a + r * g.lda, a + r * g.k, g.k);
  const RowGemm<T, C> product(g, a);
  cpu::Stream here{usable_threads(stream)};
  parallel(here, ceil_div(g.n, std::int64_t{kColumns}), g.n * g.k,
           [&](std::int64_t i) { product.columns(i * kColumns); });
}

#define TFM_INSTANTIATE(T, C) template void row_gemm(cpu::Stream&, const GemmArgs<T, C>&);
TFM_INSTANTIATE(float, float)
TFM_INSTANTIATE(bf16, bf16)
TFM_INSTANTIATE(bf16, float)
TFM_INSTANTIATE(f16, f16)
TFM_INSTANTIATE(f16, float)

}  // namespace tfm::kernels
