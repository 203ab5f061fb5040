#include "kernels/dropout.h"

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/philox_simd.h"
#include "kernels/cpu/simd_half.h"

namespace tfm::kernels {
namespace {

constexpr std::int64_t kPiece = 512;

template <bool Residual, bool Accumulate, class T>
void add(const DropoutAddArgs<T>& a, std::int64_t begin, std::int64_t n, const Accum<T>* factor) {
  const T *x = a.x + begin, *residual = a.residual + (Residual ? begin : 0);
  T* y = a.y + begin;
  auto put = [&](std::int64_t i, Vec<T> v, auto m) TFM_INLINE {
    if constexpr (Residual) v += load(residual + i, m);
    if constexpr (Accumulate) v += load(y + i, m);
    store(y + i, v, m);
  };
  if (factor)
    each<T>(n, [&](std::int64_t i, auto m)
                   TFM_INLINE { put(i, load(x + i, m) * load(factor + i, m), m); });
  else
    each<T>(n, [&](std::int64_t i, auto m) TFM_INLINE { put(i, load(x + i, m), m); });
}

template <bool Residual, bool Accumulate, class T>
void run(cpu::Stream& stream, const DropoutAddArgs<T>& a) {
  if (a.dropout.p == 0 && a.dropout.jitter == 0) {
    parallel_ranges(stream, a.rows * a.cols, [&](std::int64_t begin, std::int64_t end) {
      add<Residual, Accumulate, T>(a, begin, end - begin, nullptr);
    });
    return;
  }
  const std::int64_t row_words = round_up(a.place.cols_total, 4);
  parallel(stream, a.rows, a.rows * a.cols * 4, [&](std::int64_t r) {
    alignas(64) Accum<T> buffer[kPiece + kFactorSlack];
    const std::int64_t row = a.place.row(a.dropout, r);
    for (std::int64_t c = 0; c < a.cols; c += kPiece) {
      const std::int64_t n = std::min(kPiece, a.cols - c),
                         element = row * row_words + a.place.col_offset + c;
      add<Residual, Accumulate>(
          a, r * a.cols + c, n,
          dropout_factors(a.dropout, static_cast<std::uint64_t>(element), n, buffer));
    }
  });
}

}  // namespace

template <class T>
void dropout_add(cpu::Stream& stream, const DropoutAddArgs<T>& a) {
  with_flag(a.residual != nullptr, [&](auto residual) {
    with_flag(a.accumulate, [&](auto accumulate) { run<residual(), accumulate()>(stream, a); });
  });
}

#define TFM_INSTANTIATE(T) template void dropout_add(cpu::Stream&, const DropoutAddArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
