#include "kernels/attention_merge.inl"

#include "kernels/attention.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_half.h"

namespace tfm::kernels {

template <class T>
void attention_merge(cpu::Stream& stream, const AttentionMergeArgs<T>& a) {
  const std::int64_t D = a.head_size;
  parallel(stream, a.batch * a.queries, a.batch * a.queries * a.heads * D, [&](std::int64_t row) {
    for (std::int64_t h = 0; h < a.heads; ++h) {
      const std::int64_t at = (row * a.heads + h) * D,
                         of_lse = (row / a.queries * a.heads + h) * a.queries + row % a.queries;
      const T* part = a.part + at;
      Accum<T>* out = a.out + at;
      Accum<T>& lse = a.lse[of_lse];
      if (a.first) {
        each<T>(D,
                [&](std::int64_t i, auto m) TFM_INLINE { store(out + i, load(part + i, m), m); });
        lse = a.part_lse[of_lse];
        continue;
      }
      const MergedRow<Accum<T>> w = merged_row(lse, a.part_lse[of_lse]);
      each<T>(D, [&](std::int64_t i, auto m) TFM_INLINE {
        store(out + i, load(out + i, m) * w.before + load(part + i, m) * w.part, m);
      });
      lse = w.lse;
    }
  });
}

#define TFM_INSTANTIATE(T) \
  template void attention_merge(cpu::Stream&, const AttentionMergeArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
