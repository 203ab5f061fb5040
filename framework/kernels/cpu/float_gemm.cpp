#include "kernels/cpu/float_gemm.h"

#include "kernels/cpu/packed_gemm.h"

namespace tfm::kernels {
#ifdef TFM_AVX512
namespace {

// Terms whose sums are added to C at a time, so that none are kept beside it.
constexpr std::int64_t kDepth = 1024;

struct FloatTile {
  using Args = GemmArgs<float>;
  using Word = float;
  // (blocks of kRows rows, terms, kRows)
  struct Left {
    const float* data;
    std::int64_t terms;
  };
  static constexpr std::int64_t kTerms = 1, kPanel = 32, kInner = 256, kGroup = 196, kRows = 14;
  static constexpr std::int64_t kAhead = 8;    // terms that are asked for before they are packed
  static constexpr std::int64_t kSooner = 16;  // and before they are multiplied
  static constexpr int kVectors = kPanel / kLanes<float>;

  static void pack(const Args& g, std::int64_t column, std::int64_t columns, std::int64_t term,
                   std::int64_t terms, float* to) {
    const float* from = g.b + term * g.ldb + column;
    for (std::int64_t t = 0; t < terms; ++t, from += g.ldb, to += kPanel)
      for (std::int64_t i = 0; i < kPanel; i += kLanes<float>) {
        __builtin_prefetch(from + kAhead * g.ldb + i);
        store(to + i, load(from + i, first(columns - i)), Full{});
      }
  }

  static Left left(const Args& g, std::int64_t row, std::int64_t rows, std::int64_t term,
                   std::int64_t terms) {
    float* const packed = scratch<float, struct LeftRows>(round_up(rows, kRows) * terms);
    const float* from = g.a + term * g.lda + row;
    float* to = packed;
    for (std::int64_t t = 0; t < terms; ++t, from += g.lda, to += kRows) {
      for (std::int64_t r = 0; r < rows; r += kLanes<float>)
        __builtin_prefetch(from + kAhead * g.lda + r);
      for (std::int64_t r = 0; r < rows; r += kRows)
        store(to + r * terms, load(from + r, first(std::min(kRows, rows - r))), first(kRows));
    }
    return {packed, terms};
  }

  static void multiply(std::int64_t rows, std::int64_t, std::int64_t words, const Left& left,
                       std::int64_t from, const float* right, float* sums, bool accumulate) {
    for (std::int64_t r = 0; r < rows; r += kRows, sums += kRows * kPanel) {
      const float* const a = left.data + r * left.terms + from * kRows;
      std::int64_t i = 0, m = std::min(kRows, rows - r);
      const auto some = [&]<int Rows>() {
        for (; m >= Rows; i += Rows, m -= Rows)
          block<Rows>(words, a + i, right, sums + i * kPanel, accumulate);
      };
      some.template operator()<kRows>();
      some.template operator()<4>();
      some.template operator()<1>();
    }
  }

 private:
  static FirstLanes first(std::int64_t n) {
    return {static_cast<int>(std::clamp<std::int64_t>(n, 0, kLanes<float>))};
  }

  template <int Rows>
  static void block(std::int64_t terms, const float* a, const float* b, float* c, bool accumulate) {
    Vec<float> sum[Rows][kVectors] = {};
    const auto at = [&](int i, int j) TFM_INLINE { return c + i * kPanel + j * kLanes<float>; };
    if (accumulate)
#pragma GCC unroll 16
      for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < kVectors; ++j) sum[i][j] = load(at(i, j), Full{});
    for (std::int64_t t = 0; t < terms; ++t, a += kRows, b += kPanel) {
      __builtin_prefetch(a + kSooner * kRows);
      Vec<float> column[kVectors];
#pragma GCC unroll 2
      for (int j = 0; j < kVectors; ++j) column[j] = load(b + j * kLanes<float>, Full{});
#pragma GCC unroll 16
      for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < kVectors; ++j)
          sum[i][j] = _mm512_fmadd_ps(_mm512_set1_ps(a[i]), column[j], sum[i][j]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 2
      for (int j = 0; j < kVectors; ++j) store(at(i, j), sum[i][j], Full{});
  }
};

}  // namespace

// Sizes for which oneDNN is slower.
bool float_gemm_takes(const GemmArgs<float>& g) {
  return g.transpose_a && !g.transpose_b && g.m >= 1024 && g.n >= 256 && g.n < 768 && g.k >= 128;
}

void float_gemm(cpu::Stream& stream, const GemmArgs<float>& g) {
  GemmArgs<float> part = g;
  for (std::int64_t term = 0; term < g.k; term += kDepth, part.beta = 1, part.bias = nullptr) {
    part.k = std::min(kDepth, g.k - term);
    part.a = g.a + term * g.lda;
    part.b = g.b + term * g.ldb;
    PackedGemm<FloatTile>(part, usable_threads(stream)).run();
  }
}
#else
bool float_gemm_takes(const GemmArgs<float>&) { return false; }
void float_gemm(cpu::Stream&, const GemmArgs<float>&) {
  internal_error("this library was compiled without AVX-512");
}
#endif

}  // namespace tfm::kernels
