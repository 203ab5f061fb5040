#include "kernels/cpu/float_gemm.h"

#include "kernels/cpu/packed_gemm.h"
#include "kernels/cpu/words.h"

namespace tfm::kernels {
#ifdef TFM_AVX512
namespace {

struct LeftRows;  // name of scratch memory

constexpr std::int64_t kKeptRows = 2048;  // of a product whose sums are kept until all are added

using Floats = Vec<float>;
constexpr int kWide = kLanes<float>;

FirstLanes first(std::int64_t n) {
  return {static_cast<int>(std::clamp<std::int64_t>(n, 0, kWide))};
}

// Copies rows of x, (rows, terms), to columns of `out`, (terms, stride); up to `most`, zeros after
// the last row.
template <class T>
void pack_columns(const T* x, std::int64_t ld, std::int64_t rows, std::int64_t most,
                  std::int64_t terms, float* out, std::int64_t stride) {
  constexpr std::int64_t kSoon = 64;  // terms that are asked for before they are packed
  for (; most > 0; x += kWide * ld, out += kWide, rows -= kWide, most -= kWide)
    for (std::int64_t t = 0; t < terms; t += kWide) {
      const FirstLanes some = first(terms - t);
      __m512i r[kWide] = {};
      for (int i = 0; i < kWide && i < rows; ++i) {
        __builtin_prefetch(x + i * ld + t + kSoon);
        r[i] = (__m512i)load(x + i * ld + t, some);
      }
      transpose_words(r);
      for (int i = 0; i < some.n; ++i) store(out + (t + i) * stride, (Floats)r[i], first(most));
    }
}

// Words are terms as floats.
template <class T, class C>
struct FloatTile {
  using Args = GemmArgs<T, C>;
  using Word = float;
  // (blocks of kRows rows, terms, kRows)
  struct Left {
    const float* data;
    std::int64_t terms;
  };
  static constexpr int kVectors = 2;
  static constexpr std::int64_t kTerms = 1, kPanel = kVectors * kWide, kInner = 192, kGroup = 196,
                                kRows = 14, kSlab = 1 << 21, kDepth = 1024, kTogether = 4;
  // Terms that are asked for before they are packed, and before they are multiplied.
  static constexpr std::int64_t kAhead = 8, kSooner = 16;

  static void pack(const Args& g, std::int64_t column, std::int64_t columns, std::int64_t term,
                   std::int64_t terms, float* to) {
    if (g.transpose_b)
      return pack_columns(g.b + column * g.ldb + term, g.ldb, columns, kPanel, terms, to, kPanel);
    const T* from = g.b + term * g.ldb + column;
    for (std::int64_t t = 0; t < terms; ++t, from += g.ldb, to += kPanel)
      for (std::int64_t i = 0; i < kPanel; i += kWide) {
        __builtin_prefetch(from + kAhead * g.ldb + i);
        store(to + i, load(from + i, first(columns - i)), Full{});
      }
  }

  static Left left(const Args& g, std::int64_t row, std::int64_t rows, std::int64_t term,
                   std::int64_t terms) {
    float* const packed = scratch<float, LeftRows>(round_up(rows, kRows) * terms);
    if (!g.transpose_a) {
      for (std::int64_t r = 0; r < rows; r += kRows)
        pack_columns(g.a + (row + r) * g.lda + term, g.lda, rows - r, kRows, terms,
                     packed + r * terms, kRows);
      return {packed, terms};
    }
    const T* from = g.a + term * g.lda + row;
    float* to = packed;
    for (std::int64_t t = 0; t < terms; ++t, from += g.lda, to += kRows) {
      for (std::int64_t r = 0; r < rows; r += kWide) __builtin_prefetch(from + kAhead * g.lda + r);
      for (std::int64_t r = 0; r < rows; r += kRows)
        store(to + r * terms, load(from + r, first(std::min(kRows, rows - r))), first(kRows));
    }
    return {packed, terms};
  }

  static void multiply(std::int64_t rows, std::int64_t, std::int64_t words, const Left& left,
                       std::int64_t from, const float* right, float* sums, bool accumulate) {
    // Each block asks for its share of the words that follow, which the group meets next.
    const std::int64_t share = ceil_div(kPanel * kRows, rows);
    const float* next = right + words * kPanel;
    for (std::int64_t r = 0; r < rows; r += kRows, sums += kRows * kPanel, next += words * share) {
      const float* const a = left.data + r * left.terms + from * kRows;
      std::int64_t i = 0, m = std::min(kRows, rows - r);
      const auto some = [&]<int Rows>() {
        for (; m >= Rows; i += Rows, m -= Rows)
          block<Rows>(words, a + i, right, sums + i * kPanel, accumulate, next, share);
      };
      some.template operator()<kRows>();
      some.template operator()<4>();
      some.template operator()<1>();
    }
  }

 private:
  template <int Rows>
  static void block(std::int64_t terms, const float* a, const float* b, float* c, bool accumulate,
                    const float* next, std::int64_t share) {
    Floats sum[Rows][kVectors] = {};
    const auto at = [&](int i, int j) TFM_INLINE { return c + i * kPanel + j * kWide; };
    if (accumulate)
#pragma GCC unroll 16
      for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < kVectors; ++j) sum[i][j] = load(at(i, j), Full{});
    for (std::int64_t t = 0; t < terms; ++t, a += kRows, b += kPanel, next += share) {
      __builtin_prefetch(a + kSooner * kRows);
      __builtin_prefetch(next, 0, 2);
      Floats column[kVectors];
#pragma GCC unroll 2
      for (int j = 0; j < kVectors; ++j) column[j] = load(b + j * kWide, Full{});
#pragma GCC unroll 16
      for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < kVectors; ++j) sum[i][j] += a[i] * column[j];
    }
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 2
      for (int j = 0; j < kVectors; ++j) store(at(i, j), sum[i][j], Full{});
  }
};

}  // namespace

bool has_float_gemm() { return true; }

template <class T, class C>
void float_gemm(cpu::Stream& stream, const GemmArgs<T, C>& g) {
  using Tile = FloatTile<T, C>;
  const int threads = usable_threads(stream);
  GemmArgs<T, C> part = g;
  if constexpr (std::is_same_v<C, float>) {  // which keeps the sums itself
    for (std::int64_t term = 0; term < g.k;
         term += Tile::kDepth, part.beta = 1, part.bias = nullptr) {
      part.k = std::min(Tile::kDepth, g.k - term);
      part.a = g.a + (g.transpose_a ? term * g.lda : term);
      part.b = g.b + (g.transpose_b ? term : term * g.ldb);
      PackedGemm<Tile>(part, threads).run();
    }
  } else {
    for (std::int64_t row = 0; row < g.m; row += kKeptRows) {
      part.m = std::min(kKeptRows, g.m - row);
      part.a = g.a + (g.transpose_a ? row : row * g.lda);
      part.c = g.c + row * g.ldc;
      PackedGemm<Tile>(part, threads).run();
    }
  }
}
#else
bool has_float_gemm() { return false; }
template <class T, class C>
void float_gemm(cpu::Stream&, const GemmArgs<T, C>&) {
  internal_error("this library was compiled without AVX-512");
}
#endif

#define TFM_INSTANTIATE(T, C) template void float_gemm(cpu::Stream&, const GemmArgs<T, C>&);
TFM_INSTANTIATE(bf16, bf16)
TFM_INSTANTIATE(bf16, float)
TFM_INSTANTIATE(f16, f16)
TFM_INSTANTIATE(f16, float)

}  // namespace tfm::kernels
