// Packs of what is exchanged, see packs.h; a section may begin within one.
#include "kernels/cuda/packs.h"
#include "kernels/head_shares.h"

namespace tfm::kernels {
namespace {

template <class T>
struct MoveShares {
  HeadSharesArgs<T> a;
  std::int64_t tokens, cols, own;

  __device__ void operator()(std::int64_t at, std::int64_t c, Part part) const {
    const int ranks = a.rows.share.ranks, rank = static_cast<int>(at / tokens);
    const std::int64_t row = at % tokens, packed = at * own + c;
    if (a.heads) {
      const std::int64_t other = a.whole_row(rank, row) * own + c;
      const auto x = load_pack(a.from + (a.exchanged ? other : packed), part);
      Accum<T> y[kPack];
      TFM_UNROLL
      for (int i = 0; i < kPack; ++i) y[i] = x[i];
      store_pack(a.to + (a.exchanged ? packed : other), part, y, a.accumulate);
      return;
    }
    for (int i = part.begin; i < part.end; ++i) {
      const std::int64_t other = row * cols + a.sections.column(ranks, rank, c + i);
      const T* from = a.from + (a.exchanged ? other : packed + i);
      T* to = a.to + (a.exchanged ? packed + i : other);
      *to = a.accumulate ? static_cast<T>(static_cast<Accum<T>>(*to) + static_cast<Accum<T>>(*from))
                         : *from;
    }
  }
};

}  // namespace

template <class T>
void head_shares(cuda::Stream& stream, const HeadSharesArgs<T>& a) {
  const std::int64_t ranks = a.rows.share.ranks, tokens = a.rows.tokens(), cols = a.sections.cols(),
                     own = cols / ranks;
  over_rows(stream, ranks * tokens, own, MoveShares<T>{a, tokens, cols, own});
}

#define TFM_INSTANTIATE(T) template void head_shares(cuda::Stream&, const HeadSharesArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
