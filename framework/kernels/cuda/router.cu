// Routers: a thread takes a token or a sequence, a warp the statistics of an expert.
#include "kernels/cuda/reductions.h"
#include "kernels/router.h"
#include "kernels/router.inl"

namespace tfm::kernels {
namespace {

// The sequence and the position of row n.
struct TokenPlace {
  std::int64_t sequence, position;
  __device__ TokenPlace(const Rows& rows, std::int64_t n) {
    const std::int64_t length = rows.chunk_length(), of_chunk = rows.chunk_tokens();
    const int chunk = static_cast<int>(n / of_chunk);
    sequence = n % of_chunk / length;
    position = rows.start(chunk) + n % length;
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads) route_kernel(RouteArgs<T> a) {
  const std::int64_t n = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (n >= a.options.rows.tokens()) return;
  route_row(a, n);
}

__global__ void __launch_bounds__(kThreads) limit_slots_kernel(LimitSlotsArgs a) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x,
                     experts = a.options.experts;
  if (i < a.options.rows.sequences * experts) limit_slots_of(a, i / experts, i % experts);
}

// A block for each sequence, whose warps take experts in turn; behind the last one the sums of
// lse^2 and of the entropy.
template <class T>
__global__ void __launch_bounds__(kThreads) route_statistics_kernel(RouteArgs<T> a) {
  const RouterOptions& o = a.options;
  const std::int64_t b = blockIdx.x;
  const auto tokens = static_cast<T>(real_tokens(a, b) > 0 ? real_tokens(a, b) : 1);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (std::int64_t e = threadIdx.x / kWarp; e < routing_statistics(o.experts);
       e += kThreads / kWarp) {
    T sum = 0, count = 0;
    for (int chunk = 0; chunk < o.rows.chunks(); ++chunk)
      for (std::int64_t i = lane; i < o.rows.chunk_length(); i += kWarp) {
        const std::int64_t n = chunk * o.rows.chunk_tokens() + b * o.rows.chunk_length() + i;
        if (!counts_at(a, b, o.rows.start(chunk) + i)) continue;
        const T* const scores = a.scores + n * o.experts;
        sum += e < o.experts    ? scores[e] / score_sum(o, scores)
               : e == o.experts ? a.lse[n] * a.lse[n]
                                : a.entropy[n];
        for (std::int64_t k = 0; k < o.top_k; ++k) count += a.choice[n * o.top_k + k] == e;
      }
    sum = over_warp(sum, Sum{});
    count = over_warp(count, Sum{});
    if (lane != 0) continue;
    a.statistics[b * routing_statistics(o.experts) + e] = sum / tokens;
    if (e < o.experts) a.counts[b * o.experts + e] = count;
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) route_backward_kernel(RouteBackwardArgs<T> a) {
  const std::int64_t n = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (n >= a.options.rows.tokens()) return;
  const TokenPlace at(a.options.rows, n);
  route_row_backward(a, n, at.sequence, counts_at(a, at.sequence, at.position));
}

template <class T>
__global__ void __launch_bounds__(kThreads) load_error_kernel(LoadErrorArgs<T> a) {
  const std::int64_t e = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (e < a.experts) load_error_of(a, e);
}
template <class T>
__global__ void __launch_bounds__(kThreads) router_load_kernel(RouterLoadArgs<T> a) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < a.experts + 2) router_load_of(a, i);
}

// One warp.
template <class T>
__global__ void __launch_bounds__(kWarp) router_term_kernel(RouterTermArgs<T> a) {
  double sum = 0;
  for (std::int64_t b = threadIdx.x; b < a.sequences; b += kWarp) sum += router_term_of(a, b);
  sum = over_warp(sum, Sum{});
  if (threadIdx.x == 0) *a.sum = sum + (a.before ? *a.before : 0);
}
template <class T>
__global__ void __launch_bounds__(kThreads)
    router_term_backward_kernel(RouterTermBackwardArgs<T> a) {
  const std::int64_t b = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (b < a.sequences) router_term_row_backward(a, b);
}

template <class T>
__global__ void __launch_bounds__(kThreads) sum_routing_kernel(SumRoutingArgs<T> a) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i <= 2 * a.experts) a.sums[i] = sum_of_routing(a, i);
}
template <class T>
__global__ void __launch_bounds__(kThreads)
    sum_routing_backward_kernel(SumRoutingBackwardArgs<T> a) {
  const std::int64_t b = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (b < a.sequences) sum_routing_row_backward(a, b);
}
// One thread.
template <class T>
__global__ void __launch_bounds__(kWarp) batch_balance_kernel(BatchBalanceArgs<T> a) {
  if (threadIdx.x == 0) batch_balance_all(a);
}
template <class T>
__global__ void __launch_bounds__(kThreads)
    batch_balance_backward_kernel(BatchBalanceBackwardArgs<T> a) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i <= 2 * a.experts) batch_balance_element_backward(a, i);
}

unsigned blocks(std::int64_t n, std::int64_t each) {
  return static_cast<unsigned>(ceil_div(n, each));
}

}  // namespace

template <class T>
void route(cuda::Stream& stream, const RouteArgs<T>& a) {
  cuda::launch(stream, route_kernel<T>, blocks(a.options.rows.tokens(), kThreads), kThreads, 0, a);
  cuda::launch(stream, route_statistics_kernel<T>, static_cast<unsigned>(a.options.rows.sequences),
               kThreads, 0, a);
}
void limit_slots(cuda::Stream& stream, const LimitSlotsArgs& a) {
  cuda::launch(stream, limit_slots_kernel,
               blocks(a.options.rows.sequences * a.options.experts, kThreads), kThreads, 0, a);
}
template <class T>
void route_backward(cuda::Stream& stream, const RouteBackwardArgs<T>& a) {
  cuda::launch(stream, route_backward_kernel<T>, blocks(a.options.rows.tokens(), kThreads),
               kThreads, 0, a);
}
template <class T>
void load_error(cuda::Stream& stream, const LoadErrorArgs<T>& a) {
  cuda::launch(stream, load_error_kernel<T>, blocks(a.experts, kThreads), kThreads, 0, a);
}
template <class T>
void router_load(cuda::Stream& stream, const RouterLoadArgs<T>& a) {
  cuda::launch(stream, router_load_kernel<T>, blocks(a.experts + 2, kThreads), kThreads, 0, a);
}
template <class T>
void router_term(cuda::Stream& stream, const RouterTermArgs<T>& a) {
  cuda::launch(stream, router_term_kernel<T>, 1, kWarp, 0, a);
}
template <class T>
void router_term_backward(cuda::Stream& stream, const RouterTermBackwardArgs<T>& a) {
  cuda::launch(stream, router_term_backward_kernel<T>, blocks(a.sequences, kThreads), kThreads, 0,
               a);
}

template <class T>
void sum_routing(cuda::Stream& stream, const SumRoutingArgs<T>& a) {
  cuda::launch(stream, sum_routing_kernel<T>, blocks(2 * a.experts + 1, kThreads), kThreads, 0, a);
}
template <class T>
void sum_routing_backward(cuda::Stream& stream, const SumRoutingBackwardArgs<T>& a) {
  cuda::launch(stream, sum_routing_backward_kernel<T>, blocks(a.sequences, kThreads), kThreads, 0,
               a);
}
template <class T>
void batch_balance(cuda::Stream& stream, const BatchBalanceArgs<T>& a) {
  cuda::launch(stream, batch_balance_kernel<T>, 1, kWarp, 0, a);
}
template <class T>
void batch_balance_backward(cuda::Stream& stream, const BatchBalanceBackwardArgs<T>& a) {
  cuda::launch(stream, batch_balance_backward_kernel<T>, blocks(2 * a.experts + 1, kThreads),
               kThreads, 0, a);
}

#define TFM_INSTANTIATE(T)                                                             \
  template void route(cuda::Stream&, const RouteArgs<T>&);                             \
  template void route_backward(cuda::Stream&, const RouteBackwardArgs<T>&);            \
  template void load_error(cuda::Stream&, const LoadErrorArgs<T>&);                    \
  template void router_load(cuda::Stream&, const RouterLoadArgs<T>&);                  \
  template void router_term(cuda::Stream&, const RouterTermArgs<T>&);                  \
  template void router_term_backward(cuda::Stream&, const RouterTermBackwardArgs<T>&); \
  template void sum_routing(cuda::Stream&, const SumRoutingArgs<T>&);                  \
  template void sum_routing_backward(cuda::Stream&, const SumRoutingBackwardArgs<T>&); \
  template void batch_balance(cuda::Stream&, const BatchBalanceArgs<T>&);              \
  template void batch_balance_backward(cuda::Stream&, const BatchBalanceBackwardArgs<T>&);
TFM_INSTANTIATE(float)
TFM_INSTANTIATE(double)

}  // namespace tfm::kernels
