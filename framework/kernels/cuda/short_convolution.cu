// A thread takes an element; of gradients of weights a column of a block of rows, then column_fold.
#include <cmath>

#include "kernels/cuda/column_fold.h"
#include "kernels/scratch.h"
#include "kernels/short_convolution.h"

namespace tfm::kernels {
namespace {

// Number of positions before row r, at most K - 1, of its segment.
template <class T>
__device__ int positions_before(const ShortConvolutionArgs<T>& a, std::int64_t r) {
  const std::int64_t t = r % a.length;
  int n = 0;
  while (n < a.kernel - 1 && n < t && (!a.segments || a.segments[r - n - 1] == a.segments[r])) ++n;
  return n;
}

template <class T>
__device__ Accum<T> convolved(const ShortConvolutionArgs<T>& a, std::int64_t r, std::int64_t c,
                              int before) {
  using W = Accum<T>;
  const std::int64_t t = r % a.length, kept = a.kernel - 1, b = r / a.length;
  W s = a.bias ? W(a.bias[c]) : W(0);
  for (std::int64_t back = kept; a.state && back > t; --back)
    s += W(a.weight[c * a.kernel + kept - back]) *
         W(a.state[(b * kept + kept - back + t) * a.cols + c]);
  for (int back = before; back >= 0; --back)
    s += W(a.weight[c * a.kernel + kept - back]) * W(a.x[(r - back) * a.cols + c]);
  return s;
}

template <class W>
__device__ W sigmoid(W x) {
  return W(1) / (W(1) + std::exp(-x));
}

template <class T>
__global__ void __launch_bounds__(kThreads) convolution_kernel(ShortConvolutionArgs<T> a) {
  const std::int64_t n = std::int64_t{blockIdx.x} * kThreads + threadIdx.x, r = n / a.cols;
  if (r >= a.sequences * a.length) return;
  const Accum<T> s = convolved(a, r, n % a.cols, positions_before(a, r));
  a.y[n] = T(s * sigmoid(s));
}

// Each thread has a column of a sequence, whose kept inputs move up.
template <class T>
__global__ void __launch_bounds__(kThreads) convolution_state_kernel(ShortConvolutionArgs<T> a) {
  const std::int64_t n = std::int64_t{blockIdx.x} * kThreads + threadIdx.x, b = n / a.cols,
                     c = n % a.cols, kept = a.kernel - 1;
  if (b >= a.sequences) return;
  T* const state = a.state + b * kept * a.cols + c;
  for (std::int64_t i = 0; i < kept; ++i) {
    const std::int64_t t = a.length - kept + i;
    state[i * a.cols] = t < 0 ? state[(kept + t) * a.cols] : a.x[(b * a.length + t) * a.cols + c];
  }
}

// Gradient of the sum at row r.
template <class T>
__device__ Accum<T> sum_gradient(const ShortConvolutionBackwardArgs<T>& g, std::int64_t r,
                                 std::int64_t c, int before) {
  using W = Accum<T>;
  const W s = convolved(g.forward, r, c, before), f = sigmoid(s);
  return W(g.dy[r * g.forward.cols + c]) * (f + s * f * (W(1) - f));
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    convolution_backward_kernel(ShortConvolutionBackwardArgs<T> g) {
  using W = Accum<T>;
  const ShortConvolutionArgs<T>& a = g.forward;
  const std::int64_t n = std::int64_t{blockIdx.x} * kThreads + threadIdx.x, r = n / a.cols,
                     c = n % a.cols;
  if (r >= a.sequences * a.length) return;
  W sum = g.adds_x ? W(g.dx[n]) : W(0);
  for (int ahead = 0; ahead < a.kernel && r % a.length + ahead < a.length; ++ahead) {
    const int before = positions_before(a, r + ahead);
    if (before < ahead) break;
    sum += W(a.weight[c * a.kernel + a.kernel - 1 - ahead]) * sum_gradient(g, r + ahead, c, before);
  }
  g.dx[n] = T(sum);
}

// A block takes columns of a block of rows; `partial` (blocks, step): of weights (cols, K), then of
// biases (cols), where there are any.
template <class T>
__global__ void __launch_bounds__(kThreads)
    convolution_weight_kernel(ShortConvolutionBackwardArgs<T> g, std::int64_t rows_a_block,
                              Accum<T>* partial, std::int64_t step) {
  using W = Accum<T>;
  const ShortConvolutionArgs<T>& a = g.forward;
  const std::int64_t c = std::int64_t{blockIdx.y} * kThreads + threadIdx.x,
                     begin = blockIdx.x * rows_a_block, all = a.sequences * a.length,
                     end = begin + rows_a_block < all ? begin + rows_a_block : all;
  if (c >= a.cols) return;
  W sums[kLongestConvolution] = {}, bias = 0;  // sums: by the distance of the input
  for (std::int64_t r = begin; r < end; ++r) {
    const int before = positions_before(a, r);
    const W d = sum_gradient(g, r, c, before);
    bias += d;
    TFM_UNROLL
    for (int back = 0; back < kLongestConvolution; ++back)
      if (back <= before) sums[back] += d * W(a.x[(r - back) * a.cols + c]);
  }
  TFM_UNROLL
  for (int back = 0; back < kLongestConvolution; ++back)
    if (back < a.kernel)
      partial[blockIdx.x * step + c * a.kernel + a.kernel - 1 - back] = sums[back];
  if (a.bias) partial[blockIdx.x * step + a.cols * a.kernel + c] = bias;
}

unsigned blocks(std::int64_t n) { return static_cast<unsigned>(ceil_div(n, kThreads)); }

}  // namespace

template <class T>
void short_convolution(cuda::Stream& stream, const ShortConvolutionArgs<T>& a) {
  const std::int64_t n = a.sequences * a.length * a.cols;
  if (n <= 0) return;
  cuda::launch(stream, convolution_kernel<T>, blocks(n), kThreads, 0, a);
  if (a.state && a.kernel > 1)
    cuda::launch(stream, convolution_state_kernel<T>, blocks(a.sequences * a.cols), kThreads, 0, a);
}

template <class T>
void short_convolution_backward(cuda::Stream& stream, const ShortConvolutionBackwardArgs<T>& g) {
  const ShortConvolutionArgs<T>& a = g.forward;
  const std::int64_t rows = a.sequences * a.length, weights = a.cols * a.kernel,
                     width = weights + (a.bias ? a.cols : 0);
  if (rows * width <= 0) return;
  if (g.dx)
    cuda::launch(stream, convolution_backward_kernel<T>, blocks(rows * a.cols), kThreads, 0, g);
  if (!g.dweight && !g.dbias) return;
  const auto [count, rows_a_block] = column_sum_partition(rows, width);
  cuda::Scratch<Accum<T>> partial(stream, count * width);
  cuda::launch(stream, convolution_weight_kernel<T>,
               dim3(static_cast<unsigned>(count), blocks(a.cols)), kThreads, 0, g, rows_a_block,
               partial, width);
  column_fold<Accum<T>>(stream, {{{partial, g.dweight, g.adds_weight}, {}}, count, width, weights});
  column_fold<Accum<T>>(stream,
                        {{{partial + weights, g.dbias, g.adds_bias}, {}}, count, width, a.cols});
}

#define TFM_INSTANTIATE(T)                                                        \
  template void short_convolution(cuda::Stream&, const ShortConvolutionArgs<T>&); \
  template void short_convolution_backward(cuda::Stream&, const ShortConvolutionBackwardArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
