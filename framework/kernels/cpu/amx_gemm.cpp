#include "kernels/cpu/amx_gemm.h"

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "kernels/cpu/onednn_isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/words.h"
#ifdef __x86_64__
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tfm::kernels {
namespace {

#ifdef __x86_64__
// A block of C is 2 x 2 tiles. Of its factors, kInner terms at a time stay in the first-level cache
// for kGroup blocks; a band's left factor of at most kDepth terms, kBandElements, in the second.
constexpr std::int64_t kTile = 16, kTerms = 32, kTileElements = kTile * kTerms, kBlock = 2 * kTile,
                       kSums = kBlock * kBlock, kInner = 384, kGroup = 4, kDepth = 1024,
                       kBandElements = 640 << 10;
constexpr std::int64_t kColumns = 64;       // of the right factor, packed at once
constexpr std::int64_t kStrip = 1024;       // columns whose sums are kept from depth to depth
constexpr std::int64_t kCached = 16 << 20;  // bytes of a 16-bit C that caches may keep

// A matrix of indices (rows of the left factor, columns of the right one) and terms.
struct Factor {
  const bf16* data;
  std::int64_t stride;
  bool along_terms;  // neighbours in memory are terms of one index

  const bf16* at(std::int64_t index, std::int64_t term) const {
    return data + (along_terms ? index * stride + term : term * stride + index);
  }
};

constexpr std::uint32_t first(std::int64_t n) {
  return n >= 32 ? ~0u : n <= 0 ? 0u : (1u << n) - 1;
}

// One tile of `indices` and `terms`, zeros after them: rows are indices, or (`paired`) pairs of
// terms.
TFM_AMX_TARGET inline void pack_tile(const Factor& f, const bf16* from, std::int64_t indices,
                                     std::int64_t terms, bool paired, bf16* to) {
  __m512i r[16];
  if (f.along_terms) {
    const __mmask32 mask = first(terms);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
      r[i] = i < indices ? _mm512_maskz_loadu_epi16(mask, from + i * f.stride)
                         : _mm512_setzero_si512();
  } else {
    const __mmask16 mask = static_cast<__mmask16>(first(indices));
    const auto row = [&](std::int64_t term) TFM_AMX_TARGET {
      return term < terms ? _mm512_maskz_cvtepu16_epi32(
                                0xFFFF, _mm256_maskz_loadu_epi16(mask, from + term * f.stride))
                          : _mm512_setzero_si512();
    };
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
      r[i] = _mm512_or_si512(row(2 * i), _mm512_maskz_slli_epi32(0xFFFF, row(2 * i + 1), 16));
  }
  if (f.along_terms == paired) transpose_words(r);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) _mm512_store_si512(to + i * kTerms, r[i]);
}

// Asks for the lines of `rows` rows.
inline void prefetch(const bf16* row, std::int64_t stride, std::int64_t rows) {
  for (std::int64_t r = 0; r < rows; ++r) __builtin_prefetch(row + r * stride);
}

// [block of 32 indices][32 terms][2 tiles]: indices [begin, end), terms [term, term + depth).
TFM_AMX_TARGET void pack(const Factor& f, std::int64_t begin, std::int64_t end, std::int64_t term,
                         std::int64_t depth, bool paired, bf16* to) {
  const std::int64_t steps = ceil_div(depth, kTerms), tiles = ceil_div(end - begin, kBlock) * 2;
  const auto tile = [&](std::int64_t t, std::int64_t k) TFM_AMX_TARGET {
    const std::int64_t index = begin + t * kTile;
    const bf16* from = f.at(index, term + k * kTerms);
    if (f.along_terms && index + 2 * kTile <= end)
      prefetch(from + kTile * f.stride, f.stride, kTile);
    else if (!f.along_terms && t % 2 == 0 && (k + 2) * kTerms <= depth)
      prefetch(from + kTerms * f.stride, f.stride, kTerms);
    pack_tile(f, from, end - index, depth - k * kTerms, paired,
              to + ((t / 2 * steps + k) * 2 + t % 2) * kTileElements);
  };
  if (f.along_terms)
    for (std::int64_t t = 0; t < tiles; ++t)
      for (std::int64_t k = 0; k < steps; ++k) tile(t, k);
  else
    for (std::int64_t k = 0; k < steps; ++k)
      for (std::int64_t t = 0; t < tiles; ++t) tile(t, k);
}

// sums (2 x 2 tiles) = or += the products of `steps` pairs of packed tiles.
TFM_AMX_TARGET inline void multiply(const bf16* a, const bf16* b, std::int64_t steps, float* sums,
                                    bool accumulate) {
  constexpr int kStride = 64;
  float* const s[] = {sums, sums + 256, sums + 512, sums + 768};
  if (accumulate) {
    _tile_loadd(0, s[0], kStride);
    _tile_loadd(1, s[1], kStride);
    _tile_loadd(2, s[2], kStride);
    _tile_loadd(3, s[3], kStride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (std::int64_t k = 0; k < steps; ++k, a += 2 * kTileElements, b += 2 * kTileElements) {
    _tile_loadd(4, a, kStride);
    _tile_loadd(6, b, kStride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + kTileElements, kStride);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + kTileElements, kStride);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, s[0], kStride);
  _tile_stored(1, s[1], kStride);
  _tile_stored(2, s[2], kStride);
  _tile_stored(3, s[3], kStride);
}

// 16 columns of a row of C.
template <class C>
TFM_AMX_TARGET inline __m512 load_c(const C* c, __mmask16 mask) {
  if constexpr (sizeof(C) == 4)
    return _mm512_maskz_loadu_ps(mask, c);
  else
    return (__m512)_mm512_maskz_slli_epi32(
        0xFFFF, _mm512_maskz_cvtepu16_epi32(0xFFFF, _mm256_maskz_loadu_epi16(mask, c)), 16);
}

// Whether C goes to memory past the caches: it is read by nothing soon, or larger than they are.
template <class C>
bool streamed(const GemmArgs<bf16, C>& g) {
  constexpr std::int64_t kLine = 64, kElement = sizeof(C);
  return g.beta == 0 && g.ldc * kElement % kLine == 0 &&
         reinterpret_cast<std::uintptr_t>(g.c) % kLine == 0 &&
         (kElement == 4 || g.m * g.n * kElement > kCached);
}

// Asks for the lines of a block of C that finish() will write.
template <class C>
inline void expect(const GemmArgs<bf16, C>& g, std::int64_t row, std::int64_t column) {
  const std::int64_t rows = std::min(kBlock, g.m - row);
  const C* c = g.c + row * g.ldc + column;
  for (std::int64_t r = 0; r < rows; ++r) {
    __builtin_prefetch(c + r * g.ldc, 1);
    if (sizeof(C) == 4) __builtin_prefetch(c + r * g.ldc + kTile, 1);
  }
}

// One block of C.
template <class C>
TFM_AMX_TARGET void finish(const GemmArgs<bf16, C>& g, const float* sums, std::int64_t row,
                           std::int64_t column, bool streamed) {
  const std::int64_t rows = std::min(kBlock, g.m - row);
  const __mmask32 mask = first(std::min(kBlock, g.n - column));
  const __mmask16 low = static_cast<__mmask16>(mask), high = static_cast<__mmask16>(mask >> 16);
  const __m512 alpha = _mm512_set1_ps(g.alpha), beta = _mm512_set1_ps(g.beta),
               zero = _mm512_setzero_ps(), bias0 = g.bias ? load_c(g.bias + column, low) : zero,
               bias1 = g.bias ? load_c(g.bias + column + kTile, high) : zero;
  const bool streams = mask == ~0u && streamed;
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* sum = sums + r / kTile * 512 + r % kTile * kTile;
    C* c = g.c + (row + r) * g.ldc + column;
    __m512 v0 = _mm512_load_ps(sum), v1 = _mm512_load_ps(sum + 256);
    if (g.alpha != 1) v0 = _mm512_mul_ps(v0, alpha), v1 = _mm512_mul_ps(v1, alpha);
    if (g.bias) v0 = _mm512_add_ps(v0, bias0), v1 = _mm512_add_ps(v1, bias1);
    if (g.beta != 0) {
      v0 = _mm512_fmadd_ps(load_c(c, low), beta, v0);
      v1 = _mm512_fmadd_ps(load_c(c + kTile, high), beta, v1);
    }
    if constexpr (sizeof(C) == 4) {
      if (streams) {
        _mm512_stream_ps(c, v0);
        _mm512_stream_ps(c + kTile, v1);
        continue;
      }
      _mm512_mask_storeu_ps(c, low, v0);
      _mm512_mask_storeu_ps(c + kTile, high, v1);
    } else {
      const __m512i halves = (__m512i)_mm512_cvtne2ps_pbh(v1, v0);
      streams ? _mm512_stream_si512(reinterpret_cast<__m512i*>(c), halves)
              : _mm512_mask_storeu_epi16(c, mask, halves);
    }
  }
}

// Rows and columns of C that one thread computes.
struct Part {
  std::int64_t row, row_end, column, column_end;
};

// Computes a part of C in the calling thread: bands of rows whose packed left factor stays in the
// second-level cache, strips of columns, depths of terms.
template <class C>
class PartOfProduct {
 public:
  PartOfProduct(const GemmArgs<bf16, C>& g, const Part& part)
      : g_(g),
        part_(part),
        depths_(ceil_div(g.k, kDepth)),
        depth_(round_up(ceil_div(g.k, depths_), kTerms)),
        band_(band()),
        strip_(
            std::min(depths_ > 1 ? kStrip : g.n, round_up(part.column_end - part.column, kBlock))),
        a_(scratch<bf16, struct PackedA>(band_ * depth_)),
        b_(scratch<bf16, struct PackedB>(kColumns * depth_)),
        sums_(scratch<float, struct Sums>(depths_ > 1 ? band_ * round_up(strip_, kBlock)
                                                      : kGroup * kSums)) {}

  TFM_AMX_TARGET void compute() const {
    const AmxTiles tiles;
    for (std::int64_t row = part_.row; row < part_.row_end; row += band_)
      for (std::int64_t column = part_.column; column < part_.column_end; column += strip_)
        for (std::int64_t d = 0; d < depths_; ++d)
          compute_strip({row, std::min(part_.row_end, row + band_), column,
                         std::min(part_.column_end, column + strip_)},
                        d);
    _mm_sfence();  // orders streamed results before whatever tells another rank that they are there
  }

 private:
  std::int64_t band() const {
    const std::int64_t most = std::max(kBandElements / depth_ / kBlock, std::int64_t{1}) * kBlock,
                       rows = part_.row_end - part_.row;
    return round_up(ceil_div(rows, ceil_div(rows, most)), kBlock);
  }

  TFM_AMX_TARGET void compute_strip(const Part& p, std::int64_t d) const {
    const Factor left{g_.a, g_.lda, !g_.transpose_a}, right{g_.b, g_.ldb, g_.transpose_b};
    const std::int64_t terms = std::min(depth_, g_.k - d * depth_), steps = ceil_div(terms, kTerms);
    pack(left, p.row, p.row_end, d * depth_, terms, false, a_);
    for (std::int64_t column = p.column; column < p.column_end; column += kColumns) {
      const std::int64_t end = std::min(p.column_end, column + kColumns);
      pack(right, column, end, d * depth_, terms, true, b_);
      for (std::int64_t j = column; j < end; j += kBlock)
        compute_panel(p, d, j, b_ + (j - column) * steps * kTerms, steps);
    }
  }

  // The band's rows of the block of columns `column`, for which `b` is packed.
  TFM_AMX_TARGET void compute_panel(const Part& p, std::int64_t d, std::int64_t column,
                                    const bf16* b, std::int64_t steps) const {
    constexpr std::int64_t kSteps = kInner / kTerms, kStep = kBlock * kTerms;
    const bool last = d + 1 == depths_;
    const std::int64_t blocks = ceil_div(p.row_end - p.row, kBlock);
    for (std::int64_t group = 0; group < blocks; group += kGroup) {
      const std::int64_t end = std::min(blocks, group + kGroup);
      const auto sums = [&](std::int64_t i) {
        return depths_ > 1 ? sums_ + (column - p.column) * band_ + i * kSums
                           : sums_ + (i - group) * kSums;
      };
      for (std::int64_t k = 0; k < steps; k += kSteps)
        for (std::int64_t i = group; i < end; ++i) {
          if (last && k == 0 && !streamed_) expect(g_, p.row + i * kBlock, column);
          multiply(a_ + (i * steps + k) * kStep, b + k * kStep, std::min(kSteps, steps - k),
                   sums(i), d > 0 || k > 0);
        }
      for (std::int64_t i = group; last && i < end; ++i)
        finish(g_, sums(i), p.row + i * kBlock, column, streamed_);
    }
  }

  const GemmArgs<bf16, C>& g_;
  const Part part_;
  const bool streamed_ = streamed(g_);
  const std::int64_t depths_, depth_, band_, strip_;
  bf16 *a_, *b_;
  float* sums_;
};

// Into how many parts threads divide the rows, and so the columns: with the least work for a
// thread, packing an element counted as 80 terms.
std::int64_t parts_of_rows(std::int64_t row_blocks, std::int64_t column_blocks, std::int64_t k,
                           std::int64_t threads) {
  std::int64_t best = 1, least = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t parts = 1; parts <= threads; ++parts) {
    if (threads % parts) continue;
    const std::int64_t m = ceil_div(row_blocks, parts) * kBlock,
                       n = ceil_div(column_blocks, threads / parts) * kBlock,
                       bands = ceil_div(m * std::min(k, kDepth), kBandElements),
                       work = m * n + 80 * (m + n * bands);
    if (work < least) least = work, best = parts;
  }
  return best;
}
#endif

}  // namespace

bool has_amx() {
#ifdef __x86_64__
  static const bool has = [] {
    constexpr int kRequestPermission = 0x1023, kTileData = 18;
    return onednn_has(dnnl::cpu_isa::avx512_core_amx) &&
           syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return has;
#else
  return false;
#endif
}

template <class C>
void amx_gemm(cpu::Stream& stream, const GemmArgs<bf16, C>& g) {
#ifdef __x86_64__
  const int threads = g.m * g.n * g.k < (1 << 20) ? 1 : usable_threads(stream);
  const std::int64_t row_blocks = ceil_div(g.m, kBlock), column_blocks = ceil_div(g.n, kBlock);
  const std::int64_t down = parts_of_rows(row_blocks, column_blocks, g.k, threads),
                     across = threads / down;
  cpu::Stream team{threads};
  parallel(team, threads, kTeamWork, [&](std::int64_t t) {
    const auto begin = [](std::int64_t blocks, std::int64_t parts, std::int64_t i) {
      return blocks * i / parts * kBlock;
    };
    const std::int64_t i = t / across, j = t % across;
    const Part part{begin(row_blocks, down, i), std::min(g.m, begin(row_blocks, down, i + 1)),
                    begin(column_blocks, across, j),
                    std::min(g.n, begin(column_blocks, across, j + 1))};
    if (part.row < part.row_end && part.column < part.column_end)
      PartOfProduct<C>(g, part).compute();
  });
#else
  (void)stream, (void)g;
  internal_error("this processor has no AMX");
#endif
}

template void amx_gemm(cpu::Stream&, const GemmArgs<bf16, bf16>&);
template void amx_gemm(cpu::Stream&, const GemmArgs<bf16, float>&);

}  // namespace tfm::kernels
