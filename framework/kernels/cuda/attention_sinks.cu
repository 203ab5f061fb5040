// Sinks of attention: outputs are scaled first, then the log-sum-exps that tell by how much; see
// packs.h.
#include "kernels/attention_merge.inl"
#include "kernels/attention_sinks.h"
#include "kernels/cuda/reductions.h"

namespace tfm::kernels {
namespace {

// Rows are those of a head.
template <class T>
struct ScaleOutputs {
  AttentionSinksArgs<T> a;
  __device__ void operator()(std::int64_t row, std::int64_t c, Part part) const {
    const std::int64_t h = row % a.heads, token = row / a.heads,
                       lse = (token / a.queries * a.heads + h) * a.queries + token % a.queries;
    T* const out = a.out + token * a.out_stride + h * a.head_size + c;
    const auto x = load_pack(out, part);
    const auto merged = merged_row(a.lse[lse], cuda::widen<T>(a.sinks[h]));
    Accum<T> y[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) y[i] = x[i] * merged.before;
    store_pack(out, part, y);
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads) sums_kernel(AttentionSinksArgs<T> a) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= a.batch * a.heads * a.queries) return;
  a.lse[i] = merged_row(a.lse[i], cuda::widen<T>(a.sinks[i / a.queries % a.heads])).lse;
}

// A block sums the gradient of one head's sink.
template <class T>
__global__ void __launch_bounds__(kThreads) gradient_kernel(AttentionSinksBackwardArgs<T> b) {
  const AttentionSinksArgs<T>& a = b.forward;
  const std::int64_t h = blockIdx.x;
  const double sink = static_cast<double>(cuda::widen<T>(a.sinks[h]));
  double sum[1] = {0};
  for (std::int64_t row = threadIdx.x; row < a.batch * a.queries; row += kThreads) {
    const std::int64_t at = row * a.out_stride + h * a.head_size;
    double product = 0;
    for (std::int64_t i = 0; i < a.head_size; ++i)
      product += static_cast<double>(cuda::widen<T>(b.dout[at + i])) *
                 static_cast<double>(cuda::widen<T>(a.out[at + i]));
    const Accum<T> lse = a.lse[(row / a.queries * a.heads + h) * a.queries + row % a.queries];
    sum[0] -= std::exp(sink - static_cast<double>(lse)) * product;
  }
  over_block(sum, cuda::shared_memory<double>(), Sum{});
  if (threadIdx.x == 0)
    b.dsinks[h] = static_cast<Accum<T>>(b.accumulate ? b.dsinks[h] + sum[0] : sum[0]);
}

}  // namespace

template <class T>
void attention_sinks(cuda::Stream& stream, const AttentionSinksArgs<T>& a) {
  const std::int64_t sums = a.batch * a.heads * a.queries;
  if (sums == 0) return;
  over_rows(stream, sums, a.head_size, ScaleOutputs<T>{a});
  cuda::launch(stream, sums_kernel<T>, static_cast<unsigned>(ceil_div(sums, kThreads)), kThreads, 0,
               a);
}
template <class T>
void attention_sinks_backward(cuda::Stream& stream, const AttentionSinksBackwardArgs<T>& b) {
  if (b.forward.heads > 0)
    cuda::launch(stream, gradient_kernel<T>, static_cast<unsigned>(b.forward.heads), kThreads,
                 kThreads / kWarp * sizeof(double), b);
}

#define TFM_INSTANTIATE(T)                                                    \
  template void attention_sinks(cuda::Stream&, const AttentionSinksArgs<T>&); \
  template void attention_sinks_backward(cuda::Stream&, const AttentionSinksBackwardArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
