// Dropout with masks drawn from the counter of each element's index; see packs.h.
#include "kernels/dropout.h"

#include "kernels/cuda/packs.h"

namespace tfm::kernels {
namespace {

// The words of elements [first, first + 8).
__device__ inline void words_of(const RandomKey& key, std::uint64_t first, std::uint32_t (&word)[kPack]) {
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

template <class T> struct Add {
  DropoutAddArgs<T> a;
  std::int64_t row_words;
  std::uint32_t threshold;
  Wide<T> scale;

  __device__ void operator()(std::int64_t row, std::int64_t c, Part part) const {
    const std::int64_t at = row * a.cols + c;
    std::uint32_t word[kPack];
    put(at, part, [&](auto& x) {
      words_of(a.dropout.current(), static_cast<std::uint64_t>((a.place.first_row(a.dropout) + row) * row_words + a.place.col_offset + c), word);
      TFM_UNROLL
      for (int i = 0; i < kPack; ++i) x[i] *= word[i] >= threshold ? scale : Wide<T>{0};
    });
  }
  __device__ void operator()(std::int64_t at, Part part) const {  // without dropout
    put(at, part, [](auto&) {});
  }
  template <class F> __device__ void put(std::int64_t at, Part part, F&& drop) const {
    const auto x = load_pack(a.x + at, part), residual = a.residual ? load_pack(a.residual + at, part) : Eight<T>{};
    Wide<T> y[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) y[i] = x[i];
    drop(y);
    if (a.residual) {
      TFM_UNROLL
      for (int i = 0; i < kPack; ++i) y[i] += residual[i];
    }
    store_pack(a.y + at, part, y, a.accumulate);
  }
};

}  // namespace

template <class T> void dropout_add(cuda::Stream& stream, const DropoutAddArgs<T>& a) {
  const Add<T> add{a, round_up(a.place.cols_total, 4), a.dropout.threshold(), static_cast<Wide<T>>(a.dropout.scale())};
  if (a.dropout.p == 0)
    over_array(stream, a.y, a.rows * a.cols, add);
  else
    over_rows(stream, a.rows, a.cols, add);
}

#define TFM_INSTANTIATE(T) template void dropout_add(cuda::Stream&, const DropoutAddArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
