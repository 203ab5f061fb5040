#include "kernels/attention_sinks.h"

#include "kernels/attention_merge.inl"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_half.h"

namespace tfm::kernels {

template <class T>
void attention_sinks(cpu::Stream& stream, const AttentionSinksArgs<T>& a) {
  const std::int64_t D = a.head_size;
  parallel(stream, a.batch * a.queries, a.batch * a.queries * a.heads * D, [&](std::int64_t row) {
    for (std::int64_t h = 0; h < a.heads; ++h) {
      T* const out = a.out + row * a.out_stride + h * D;
      Accum<T>& lse = a.lse[(row / a.queries * a.heads + h) * a.queries + row % a.queries];
      const auto merged = merged_row(lse, static_cast<Accum<T>>(a.sinks[h]));
      each<T>(D, [&](std::int64_t i, auto m)
                     TFM_INLINE { store(out + i, load(out + i, m) * merged.before, m); });
      lse = merged.lse;
    }
  });
}

template <class T>
void attention_sinks_backward(cpu::Stream& stream, const AttentionSinksBackwardArgs<T>& b) {
  const AttentionSinksArgs<T>& a = b.forward;
  const std::int64_t D = a.head_size;
  parallel(stream, a.heads, a.batch * a.queries * a.heads * D, [&](std::int64_t h) {
    double sum = 0;
    for (std::int64_t row = 0; row < a.batch * a.queries; ++row) {
      const std::int64_t at = row * a.out_stride + h * D;
      double product = 0;
      for (std::int64_t i = 0; i < D; ++i)
        product += static_cast<double>(b.dout[at + i]) * static_cast<double>(a.out[at + i]);
      const Accum<T> lse = a.lse[(row / a.queries * a.heads + h) * a.queries + row % a.queries];
      sum -= std::exp(static_cast<double>(a.sinks[h]) - static_cast<double>(lse)) * product;
    }
    b.dsinks[h] = static_cast<Accum<T>>(b.accumulate ? b.dsinks[h] + sum : sum);
  });
}

#define TFM_INSTANTIATE(T)                                                   \
  template void attention_sinks(cpu::Stream&, const AttentionSinksArgs<T>&); \
  template void attention_sinks_backward(cpu::Stream&, const AttentionSinksBackwardArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
