// Attention to parts of the keys is joined: first the outputs, then the log-sum-exps that they are
// weighed by; see packs.h.
#include "kernels/attention.h"
#include "kernels/attention_merge.inl"
#include "kernels/cuda/packs.h"

namespace tfm::kernels {
namespace {

// Rows are those of a head.
template <class T>
struct MergeOutputs {
  AttentionMergeArgs<T> a;
  __device__ void operator()(std::int64_t row, std::int64_t c, Part part) const {
    const std::int64_t h = row % a.heads, t = row / a.heads % a.queries,
                       b = row / a.heads / a.queries, lse = (b * a.heads + h) * a.queries + t;
    Accum<T>* to = a.out + row * a.head_size + c;
    const auto x = load_pack(a.part + row * a.head_size + c, part);
    Accum<T> y[kPack];
    if (a.first) {
      TFM_UNROLL
      for (int i = 0; i < kPack; ++i) y[i] = x[i];
    } else {
      const auto before = load_pack(to, part);
      const MergedRow<Accum<T>> w = merged_row(a.lse[lse], a.part_lse[lse]);
      TFM_UNROLL
      for (int i = 0; i < kPack; ++i) y[i] = before[i] * w.before + x[i] * w.part;
    }
    store_pack(to, part, y);
  }
};

template <class W>
struct MergeSums {
  const W* part_lse;
  W* lse;
  bool first;
  __device__ void operator()(std::int64_t at, Part part) const {
    const auto x = load_pack(part_lse + at, part), before = load_pack(lse + at, part);
    W y[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) y[i] = first ? x[i] : merged_row(before[i], x[i]).lse;
    store_pack(lse + at, part, y);
  }
};

}  // namespace

template <class T>
void attention_merge(cuda::Stream& stream, const AttentionMergeArgs<T>& a) {
  over_rows(stream, a.batch * a.queries * a.heads, a.head_size, MergeOutputs<T>{a});
  over_array(stream, a.lse, a.batch * a.heads * a.queries,
             MergeSums<Accum<T>>{a.part_lse, a.lse, a.first});
}

#define TFM_INSTANTIATE(T) \
  template void attention_merge(cuda::Stream&, const AttentionMergeArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
