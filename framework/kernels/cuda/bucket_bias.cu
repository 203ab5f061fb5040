// The attention's bias from a table of distance buckets.
#include "kernels/attention.h"
#include "kernels/cuda/packs.h"
#include "kernels/cuda/reductions.h"

namespace tfm::kernels {
namespace {

template <class T>
__global__ void __launch_bounds__(kThreads) bias_kernel(BucketBiasArgs<T> a) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x,
                     h = blockIdx.y;
  if (i < a.distances)
    a.bias[h * a.distances + i] = cuda::widen<T>(a.table[h * a.buckets + a.bucket[i]]);
}

// A block sums one element of the table.
template <class T>
__global__ void __launch_bounds__(kThreads) table_kernel(BucketBiasBackwardArgs<T> a) {
  const std::int64_t k = blockIdx.x, h = blockIdx.y;
  double sum[1] = {0};
  for (std::int64_t i = threadIdx.x; i < a.distances; i += kThreads)
    if (a.bucket[i] == k)
      for (std::int64_t b = 0; b < a.batch; ++b)
        sum[0] += static_cast<double>(a.dbias[(b * a.heads + h) * a.distances + i]);
  over_block(sum, cuda::shared_memory<double>(), Sum{});
  Accum<T>& to = a.dtable[h * a.buckets + k];
  if (threadIdx.x == 0) to = static_cast<Accum<T>>(a.accumulate ? to + sum[0] : sum[0]);
}

}  // namespace

template <class T>
void bucket_bias(cuda::Stream& stream, const BucketBiasArgs<T>& a) {
  if (a.heads > 0 && a.distances > 0)
    cuda::launch(stream, bias_kernel<T>,
                 dim3(static_cast<unsigned>(ceil_div(a.distances, kThreads)),
                      static_cast<unsigned>(a.heads)),
                 kThreads, 0, a);
}
template <class T>
void bucket_bias_backward(cuda::Stream& stream, const BucketBiasBackwardArgs<T>& a) {
  if (a.heads > 0 && a.buckets > 0)
    cuda::launch(stream, table_kernel<T>,
                 dim3(static_cast<unsigned>(a.buckets), static_cast<unsigned>(a.heads)), kThreads,
                 kThreads / kWarp * sizeof(double), a);
}

#define TFM_INSTANTIATE(T)                                            \
  template void bucket_bias(cuda::Stream&, const BucketBiasArgs<T>&); \
  template void bucket_bias_backward(cuda::Stream&, const BucketBiasBackwardArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
