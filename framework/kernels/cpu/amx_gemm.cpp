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
// A block of C is 2 x 2 tiles. One factor is kept: a band of its rows or columns, packed, stays in
// the second-level cache, at most kDepth terms and kBandElements elements of it. The other one
// passes: 32 columns or rows and kInner terms of it at a time are packed into the first-level cache
// and multiplied with the whole band.
constexpr std::int64_t kTile = 16, kTerms = 32, kTileElements = kTile * kTerms, kBlock = 2 * kTile,
                       kSums = kBlock * kBlock, kInner = 256, kDepth = 768, kBand = 1024,
                       kBandElements = 512 << 10;
constexpr std::int64_t kStrip = 1024;       // of the passing factor, whose sums last over depths
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

// Indices [begin, end) and terms [first, last) of a factor.
struct Slab {
  const Factor& factor;
  std::int64_t begin, end, first, last;
};

// To [block of 32 indices][32 terms][2 tiles].
TFM_AMX_TARGET void pack(const Slab& s, bool paired, bf16* to) {
  const Factor& f = s.factor;
  const std::int64_t steps = ceil_div(s.last - s.first, kTerms),
                     tiles = ceil_div(s.end - s.begin, kBlock) * 2;
  const auto tile = [&](std::int64_t t, std::int64_t k) TFM_AMX_TARGET {
    const std::int64_t index = s.begin + t * kTile, term = s.first + k * kTerms;
    pack_tile(f, f.at(index, term), s.end - index, s.last - term, paired,
              to + ((t / 2 * steps + k) * 2 + t % 2) * kTileElements);
  };
  if (f.along_terms)
    for (std::int64_t t = 0; t < tiles; ++t)
      for (std::int64_t k = 0; k < steps; ++k) {
        // Rows are too short for what the processor fetches ahead by itself.
        for (std::int64_t i = 0; i < kTile; ++i)
          __builtin_prefetch(f.at(s.begin + (t + 1) * kTile + i, s.first + k * kTerms), 0, 2);
        tile(t, k);
      }
  else
    for (std::int64_t k = 0; k < steps; ++k)
      for (std::int64_t t = 0; t < tiles; ++t) tile(t, k);
}

// Brings a slab into the second-level cache, in `parts` parts.
class Prefetch {
 public:
  Prefetch(const Slab& s, std::int64_t parts)
      : row_(s.factor.at(s.begin, s.first)),
        stride_(s.factor.stride),
        rows_(s.factor.along_terms ? s.end - s.begin : s.last - s.first),
        width_(s.factor.along_terms ? s.last - s.first : s.end - s.begin),
        lines_(ceil_div(rows_ * ceil_div(width_, kLine), parts)) {}

  void part() {
    for (std::int64_t i = 0; i < lines_ && rows_ > 0; ++i) {
      __builtin_prefetch(row_ + at_, 0, 2);
      at_ += kLine;
      if (at_ >= width_) at_ = 0, row_ += stride_, --rows_;
    }
  }

 private:
  static constexpr std::int64_t kLine = 32;  // elements
  const bf16* row_;
  std::int64_t stride_, rows_, width_, lines_, at_ = 0;
};

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

// Rows or columns of C.
struct Range {
  std::int64_t begin, end;
  std::int64_t size() const { return end - begin; }
};

// How a thread computes m rows and n columns: which factor is kept, and in what parts.
struct Order {
  std::int64_t m, n, k;
  bool along_terms;  // rows of the left factor, which then pass: packing copies them
  std::int64_t depths = ceil_div(k, kDepth), depth = round_up(ceil_div(k, depths), kTerms),
               most = std::clamp(kBandElements / depth, kBlock, kBand) / kBlock * kBlock;
  bool keeps_columns = along_terms || packing(n, m) < packing(m, n);
  std::int64_t kept = keeps_columns ? n : m, passing = keeps_columns ? m : n,
               band = round_up(ceil_div(kept, ceil_div(kept, most)), kBlock),
               strip = depths > 1 ? std::min(kStrip, round_up(passing, kBlock)) : passing;

  // Packing, of some parts more than once, as terms of sums that take as long: 80 for an element,
  // 48 for one that is copied.
  std::int64_t packing(std::int64_t kept_factor, std::int64_t passing_factor) const {
    return 80 * kept_factor * (depths > 1 ? ceil_div(passing_factor, kStrip) : 1) +
           (along_terms ? 48 : 80) * passing_factor * ceil_div(kept_factor, most);
  }
  std::int64_t work() const { return m * n + packing(kept, passing); }
};

struct ProductParts;  // scratch memory of both types of C

// Computes a part of C in the calling thread.
template <class C>
class PartOfProduct {
 public:
  PartOfProduct(const GemmArgs<bf16, C>& g, Range rows, Range columns)
      : g_(g),
        order_{rows.size(), columns.size(), g.k, !g.transpose_a},
        kept_range_(order_.keeps_columns ? columns : rows),
        passing_range_(order_.keeps_columns ? rows : columns),
        sums_(scratch<float, ProductParts>(sums() + (kept() + kBlock * kInner) / 2)),
        kept_(reinterpret_cast<bf16*>(sums_ + sums())),
        passing_(kept_ + kept()) {}

  TFM_AMX_TARGET void compute() const {
    const AmxTiles tiles;
    const std::int64_t band = order_.band, strip = order_.strip;
    for (std::int64_t i = kept_range_.begin; i < kept_range_.end; i += band)
      for (std::int64_t j = passing_range_.begin; j < passing_range_.end; j += strip)
        for (std::int64_t d = 0; d < order_.depths; ++d)
          compute_strip({i, std::min(kept_range_.end, i + band)},
                        {j, std::min(passing_range_.end, j + strip)}, d);
    _mm_sfence();  // orders streamed results before whatever tells another rank that they are there
  }

 private:
  // Elements of scratch memory.
  std::int64_t sums() const { return order_.band * (order_.depths > 1 ? order_.strip : kBlock); }
  std::int64_t kept() const { return order_.band * order_.depth; }

  TFM_AMX_TARGET void compute_strip(Range kept, Range passing, std::int64_t d) const {
    const bool columns = order_.keeps_columns;
    const Factor left{g_.a, g_.lda, !g_.transpose_a}, right{g_.b, g_.ldb, g_.transpose_b};
    const std::int64_t first = d * order_.depth, last = std::min(g_.k, first + order_.depth),
                       chunks = ceil_div(last - first, kInner),
                       all_chunks = ceil_div(passing.size(), kBlock) * chunks;
    const auto chunk = [&](std::int64_t c) {
      const std::int64_t begin = std::min(passing.end, passing.begin + c / chunks * kBlock),
                         term = first + c % chunks * kInner;
      return Slab{columns ? left : right, begin, std::min(passing.end, begin + kBlock), term,
                  std::min(last, term + kInner)};
    };
    pack({columns ? right : left, kept.begin, kept.end, first, last}, columns, kept_);
    for (std::int64_t c = 0; c < all_chunks; ++c) {
      const Slab slab = chunk(c);
      pack(slab, !columns, passing_);
      float* sums = sums_ + (order_.depths > 1 ? c / chunks * kBlock * order_.band : 0);
      multiply_chunk(kept, slab, first, last, sums, chunk(c + 1));
    }
  }

  // The kept band times the packed slab of the passing factor; both have terms of [first, last).
  TFM_AMX_TARGET void multiply_chunk(Range kept, const Slab& slab, std::int64_t first,
                                     std::int64_t last, float* sums, const Slab& next) const {
    const bool columns = order_.keeps_columns, begins = slab.first == first,
               ends = slab.last == g_.k;
    const std::int64_t blocks = ceil_div(kept.size(), kBlock),
                       all_steps = ceil_div(last - first, kTerms),
                       steps = ceil_div(slab.last - slab.first, kTerms);
    Prefetch prefetch(next, blocks);
    const bf16* band = kept_ + (slab.first - first) * kBlock;
    for (std::int64_t i = 0; i < blocks; ++i, band += all_steps * kTerms * kBlock, sums += kSums) {
      const std::int64_t at = kept.begin + i * kBlock, row = columns ? slab.begin : at,
                         column = columns ? at : slab.begin;
      if (begins && last == g_.k && !streamed_) expect(g_, row, column);
      prefetch.part();
      multiply(columns ? passing_ : band, columns ? band : passing_, steps, sums, slab.first > 0);
      if (ends) finish(g_, sums, row, column, streamed_);
    }
  }

  const GemmArgs<bf16, C>& g_;
  const Order order_;
  const Range kept_range_, passing_range_;
  const bool streamed_ = streamed(g_);
  float* sums_;
  bf16 *kept_, *passing_;
};

// Into how many parts threads divide the rows, and so the columns: with the least work for a
// thread.
std::int64_t parts_of_rows(std::int64_t row_blocks, std::int64_t column_blocks, std::int64_t k,
                           bool along_terms, std::int64_t threads) {
  std::int64_t best = 1, least = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t parts = 1; parts <= threads; ++parts) {
    if (threads % parts) continue;
    const Order order{ceil_div(row_blocks, parts) * kBlock,
                      ceil_div(column_blocks, threads / parts) * kBlock, k, along_terms};
    if (order.work() < least) least = order.work(), best = parts;
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
  const std::int64_t down = parts_of_rows(row_blocks, column_blocks, g.k, !g.transpose_a, threads),
                     across = threads / down;
  cpu::Stream team{threads};
  parallel(team, threads, kTeamWork, [&](std::int64_t t) {
    const auto begin = [](std::int64_t blocks, std::int64_t parts, std::int64_t i) {
      return blocks * i / parts * kBlock;
    };
    const std::int64_t i = t / across, j = t % across;
    const Range rows{begin(row_blocks, down, i), std::min(g.m, begin(row_blocks, down, i + 1))},
        columns{begin(column_blocks, across, j),
                std::min(g.n, begin(column_blocks, across, j + 1))};
    if (rows.size() > 0 && columns.size() > 0) PartOfProduct<C>(g, rows, columns).compute();
  });
#else
  (void)stream, (void)g;
  internal_error("this processor has no AMX");
#endif
}

template void amx_gemm(cpu::Stream&, const GemmArgs<bf16, bf16>&);
template void amx_gemm(cpu::Stream&, const GemmArgs<bf16, float>&);

}  // namespace tfm::kernels
