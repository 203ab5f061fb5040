#include "kernels/head_shares.h"

#include <algorithm>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_half.h"

namespace tfm::kernels {

template <class T>
void head_shares(cpu::Stream& stream, const HeadSharesArgs<T>& a) {
  const int ranks = a.rows.share.ranks;
  const std::int64_t tokens = a.rows.tokens(), cols = a.sections.cols(), own = cols / ranks;
  parallel(stream, ranks * tokens, tokens * cols, [&](std::int64_t at) {
    const int rank = static_cast<int>(at / tokens);
    const std::int64_t row = at % tokens;
    const auto move = [&](std::int64_t other, std::int64_t place, std::int64_t n) {
      const std::int64_t packed = at * own + place;
      const T* from = a.from + (a.exchanged ? other : packed);
      T* to = a.to + (a.exchanged ? packed : other);
      if (!a.accumulate) return void(std::copy_n(from, n, to));
      each<T>(n, [&](std::int64_t i, auto m)
                     TFM_INLINE { store(to + i, load(to + i, m) + load(from + i, m), m); });
    };
    if (a.heads)
      move(a.whole_row(rank, row) * own, 0, own);
    else
      a.sections.each_part(ranks, rank,
                           [&](std::int64_t first, std::int64_t place, std::int64_t n) {
                             move(row * cols + first, place, n);
                           });
  });
}

#define TFM_INSTANTIATE(T) template void head_shares(cpu::Stream&, const HeadSharesArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
