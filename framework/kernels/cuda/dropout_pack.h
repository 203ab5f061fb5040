#pragma once
// residual + dropout(x) on packs. Masks depend only on each element's index.
#include <cmath>

#include "kernels/cuda/packs.h"
#include "kernels/dropout.h"

namespace tfm::kernels {

// Random words of elements [first, first + 8).
__device__ inline void words_of(const RandomKey& key, std::uint64_t first,
                                std::uint32_t (&word)[kPack]) {
  if (first % 4 == 0) {
    TFM_UNROLL
    for (int half = 0; half < 2; ++half) {
      const Philox4 four = key.block(first / 4 + half);
      TFM_UNROLL
      for (int i = 0; i < 4; ++i) word[half * 4 + i] = four[i];
    }
  } else {  // a part of the columns that does not start with a block of four
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) word[i] = key.word(first + i);
  }
}

template <class T>
struct Add {
  DropoutAddArgs<T> a;
  std::int64_t row_words;
  std::uint32_t threshold;
  Accum<T> scale;

  explicit Add(const DropoutAddArgs<T>& args)
      : a(args),
        row_words(round_up(args.place.cols_total, 4)),
        threshold(args.dropout.threshold()),
        scale(static_cast<Accum<T>>(args.dropout.scale())) {}

  // y for the pack at (row, c) or, without dropout, at element `at` of the array. Rounding is the
  // same in every kernel that includes it.
  template <class P>
  __device__ void pack(std::int64_t row, std::int64_t c, P part, Accum<T> (&y)[kPack]) const {
    std::uint32_t word[kPack];
    words_of(a.dropout.current(),
             static_cast<std::uint64_t>(a.place.row(a.dropout, row) * row_words +
                                        a.place.col_offset + c),
             word);
    const std::int64_t at = row * a.cols + c;
    const auto x = load_pack(a.x + at, part),
               residual = a.residual ? load_pack(a.residual + at, part) : Eight<T>{};
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i)
      y[i] = std::fma(x[i],
                      a.dropout.jitter > 0   ? static_cast<Accum<T>>(a.dropout.factor(word[i]))
                      : word[i] >= threshold ? scale
                                             : Accum<T>{0},
                      residual[i]);
  }
  template <class P>
  __device__ void pack(std::int64_t at, P part, Accum<T> (&y)[kPack]) const {
    const auto x = load_pack(a.x + at, part),
               residual = a.residual ? load_pack(a.residual + at, part) : Eight<T>{};
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) y[i] = x[i] + residual[i];
  }
};

}  // namespace tfm::kernels
