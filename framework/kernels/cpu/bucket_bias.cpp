#include "kernels/attention.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_half.h"

namespace tfm::kernels {

template <class T>
void bucket_bias(cpu::Stream& stream, const BucketBiasArgs<T>& a) {
  parallel(stream, a.heads, a.heads * a.distances, [&](std::int64_t h) {
    const T* table = a.table + h * a.buckets;
    Accum<T>* bias = a.bias + h * a.distances;
    for (std::int64_t i = 0; i < a.distances; ++i) bias[i] = table[a.bucket[i]];
  });
}

template <class T>
void bucket_bias_backward(cpu::Stream& stream, const BucketBiasBackwardArgs<T>& a) {
  parallel(stream, a.heads, a.batch * a.heads * a.distances, [&](std::int64_t h) {
    double* sum = scratch<double, struct BucketSums>(a.buckets);
    std::fill_n(sum, a.buckets, 0.0);
    for (std::int64_t b = 0; b < a.batch; ++b) {
      const Accum<T>* dbias = a.dbias + (b * a.heads + h) * a.distances;
      for (std::int64_t i = 0; i < a.distances; ++i)
        sum[a.bucket[i]] += static_cast<double>(dbias[i]);
    }
    Accum<T>* dtable = a.dtable + h * a.buckets;
    for (std::int64_t k = 0; k < a.buckets; ++k)
      dtable[k] = static_cast<Accum<T>>(a.accumulate ? dtable[k] + sum[k] : sum[k]);
  });
}

#define TFM_INSTANTIATE(T)                                           \
  template void bucket_bias(cpu::Stream&, const BucketBiasArgs<T>&); \
  template void bucket_bias_backward(cpu::Stream&, const BucketBiasBackwardArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
