// One block: a batch has few sequences.
#include "kernels/cuda/packs.h"
#include "kernels/cuda/reductions.h"
#include "kernels/squared_error.h"

namespace tfm::kernels {
namespace {

template <class T>
__global__ void __launch_bounds__(kThreads) squared_error_kernel(SquaredErrorArgs<T> a) {
  double sum[1] = {0};
  for (std::int64_t r = threadIdx.x; r < a.rows; r += kThreads)
    sum[0] += difference(a, r) * difference(a, r);
  over_block(sum, cuda::shared_memory<double>(), Sum{});
  if (threadIdx.x == 0) *a.total = sum[0];
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    squared_error_backward_kernel(SquaredErrorBackwardArgs<T> a) {
  for (std::int64_t r = threadIdx.x; r < a.rows; r += kThreads) squared_error_row_backward(a, r);
}

}  // namespace

template <class T>
void squared_error(cuda::Stream& stream, const SquaredErrorArgs<T>& a) {
  cuda::launch(stream, squared_error_kernel<T>, 1, kThreads, sizeof(double) * kThreads / kWarp, a);
}
template <class T>
void squared_error_backward(cuda::Stream& stream, const SquaredErrorBackwardArgs<T>& a) {
  cuda::launch(stream, squared_error_backward_kernel<T>, 1, kThreads, 0, a);
}

#define TFM_INSTANTIATE(T)                                                \
  template void squared_error(cuda::Stream&, const SquaredErrorArgs<T>&); \
  template void squared_error_backward(cuda::Stream&, const SquaredErrorBackwardArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
