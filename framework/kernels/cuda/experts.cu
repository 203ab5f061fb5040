// Routers, and rows on their way to experts and back; see packs.h.
#include "kernels/cuda/reductions.h"
#include "kernels/experts.h"
#include "kernels/experts.inl"

namespace tfm::kernels {
namespace {

constexpr int kSortThreads = 1024;

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

// A block for each sequence, whose warps take experts in turn; behind the last one the sum of
// lse^2.
template <class T>
__global__ void __launch_bounds__(kThreads) route_statistics_kernel(RouteArgs<T> a) {
  const RouterOptions& o = a.options;
  const std::int64_t b = blockIdx.x;
  const auto tokens = static_cast<T>(real_tokens(a, b) > 0 ? real_tokens(a, b) : 1);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (std::int64_t e = threadIdx.x / kWarp; e <= o.experts; e += kThreads / kWarp) {
    T sum = 0, count = 0;
    for (int chunk = 0; chunk < o.rows.chunks(); ++chunk)
      for (std::int64_t i = lane; i < o.rows.chunk_length(); i += kWarp) {
        const std::int64_t n = chunk * o.rows.chunk_tokens() + b * o.rows.chunk_length() + i;
        if (!counts_at(a, b, o.rows.start(chunk) + i)) continue;
        const T* const scores = a.scores + n * o.experts;
        sum += e == o.experts ? a.lse[n] * a.lse[n] : scores[e] / score_sum(o, scores);
        for (std::int64_t k = 0; k < o.top_k; ++k) count += a.choice[n * o.top_k + k] == e;
      }
    sum = over_warp(sum, Sum{});
    count = over_warp(count, Sum{});
    if (lane != 0) continue;
    a.statistics[b * (o.experts + 1) + e] = sum / tokens;
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

// A block for each expert, whose threads take slots that follow each other, behind those of the
// threads before; the block behind the last expert's takes the slots without one.
__global__ void __launch_bounds__(kSortThreads) sort_slots_kernel(SortSlotsArgs a) {
  int* const of_warp = cuda::shared_memory<int>();  // slots of each warp
  const std::int64_t expert = blockIdx.x;
  const int warp = static_cast<int>(threadIdx.x) / kWarp,
            lane = static_cast<int>(threadIdx.x) % kWarp, warps = kSortThreads / kWarp;
  const std::int64_t share = (a.slots + kSortThreads - 1) / kSortThreads,
                     begin = threadIdx.x * share,
                     end = begin + share < a.slots ? begin + share : a.slots;
  int own = 0, before[1] = {0};
  for (std::int64_t s = begin; s < end; ++s) {
    own += a.choice[s] == expert;
    before[0] += a.choice[s] >= 0 && a.choice[s] < expert;
  }
  over_block(before, of_warp + warps, Sum{});
  int up_to = own;  // in this warp
  for (int by = 1; by < kWarp; by *= 2) {
    const int others = cuda::shuffle_up(up_to, by);
    if (lane >= by) up_to += others;
  }
  if (lane == kWarp - 1) of_warp[warp] = up_to;
  cuda::block_barrier();
  int at = before[0] + up_to - own;
  for (int w = 0; w < warp; ++w) at += of_warp[w];
  if (threadIdx.x == 0) a.offsets[expert] = before[0];
  if (expert == a.experts) {
    for (std::int64_t s = begin; s < end; ++s) {
      if (a.choice[s] < 0) a.place[s] = -1;
      if (s >= before[0]) a.slot[s] = -1;
    }
    return;
  }
  for (std::int64_t s = begin; s < end; ++s) {
    if (a.choice[s] != expert) continue;
    a.slot[at] = static_cast<std::int32_t>(s);
    a.place[s] = at++;
  }
}

template <class T>
struct Gather {
  GatherSlotsArgs<T> a;
  __device__ void operator()(std::int64_t row, std::int64_t c, Part part) const {
    const std::int64_t slot = a.slot[row];
    Accum<T> y[kPack] = {};
    if (slot >= 0) {
      const auto x = load_pack(a.x + slot / a.top_k * a.cols + c, part);
      TFM_UNROLL
      for (int i = 0; i < kPack; ++i) y[i] = x[i];
    }
    store_pack(a.y + row * a.cols + c, part, y);
  }
};

template <class T>
struct Combine {
  CombineSlotsArgs<T> a;
  __device__ void operator()(std::int64_t token, std::int64_t c, Part part) const {
    Accum<T> y[kPack] = {};
    for (std::int64_t s = token * a.top_k; s < (token + 1) * a.top_k; ++s) {
      if (a.place[s] < 0) continue;
      const auto x = load_pack(a.x + a.place[s] * a.cols + c, part);
      const Accum<T> weight = a.weights ? a.weights[s] : Accum<T>{1};
      TFM_UNROLL
      for (int i = 0; i < kPack; ++i) y[i] += x[i] * weight;
    }
    store_pack(a.y + token * a.cols + c, part, y, a.accumulate);
  }
};

// A warp takes one row.
template <class T>
__device__ Accum<T> dot(const T* x, const T* y, std::int64_t n) {
  Accum<T> sum = 0;
  for (std::int64_t c = threadIdx.x % kWarp * kPack; c < n; c += kWarp * kPack) {
    const auto v = load_pack(x + c, part_of(c, n)), w = load_pack(y + c, part_of(c, n));
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) sum += v[i] * w[i];
  }
  return over_warp(sum, Sum{});
}
template <class T>
__device__ void scale(T* x, std::int64_t n, Accum<T> by) {
  for (std::int64_t c = threadIdx.x % kWarp * kPack; c < n; c += kWarp * kPack) {
    const auto v = load_pack(x + c, part_of(c, n));
    Accum<T> y[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) y[i] = v[i] * by;
    store_pack(x + c, part_of(c, n), y);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) weigh_slots_kernel(WeighSlotsArgs<T> a) {
  const std::int64_t r = std::int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (r >= a.rows || a.slot[r] < 0) return;
  const std::int64_t s = a.slot[r];
  T *const dh = a.dh + r * a.hidden, *const dy = a.dy + r * a.cols;
  Accum<T> sum = dot(a.h + r * a.hidden, dh, a.hidden);
  if (a.bias) sum += dot(a.bias + a.choice[s] * a.cols, dy, a.cols);
  if (threadIdx.x % kWarp == 0) a.dweights[s] = sum;
  scale(dh, a.hidden, a.weights[s]);
  scale(dy, a.cols, a.weights[s]);
}

template <class T>
struct AddGated {
  GatedAddArgs<T> a;
  __device__ void operator()(std::int64_t row, std::int64_t c, Part part) const {
    const std::int64_t at = row * a.cols + c;
    const auto x = load_pack(a.x + at, part), residual = load_pack(a.residual + at, part);
    const Accum<T> gate = sigmoid(a.gate[row]);
    Accum<T> y[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) y[i] = residual[i] + x[i] * gate;
    store_pack(a.y + at, part, y);
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads) gated_add_backward_kernel(GatedAddBackwardArgs<T> a) {
  const std::int64_t r = std::int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (r >= a.rows) return;
  const Accum<T> gate = sigmoid(a.gate[r]), sum = dot(a.dy + r * a.cols, a.x + r * a.cols, a.cols);
  if (threadIdx.x % kWarp == 0) a.dgate[r] = sum * gate * (1 - gate);
  for (std::int64_t c = threadIdx.x % kWarp * kPack; c < a.cols; c += kWarp * kPack) {
    const Part part = part_of(c, a.cols);
    const auto dy = load_pack(a.dy + r * a.cols + c, part);
    Accum<T> dx[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) dx[i] = dy[i] * gate;
    store_pack(a.dx + r * a.cols + c, part, dx);
  }
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
unsigned blocks_of_warps(std::int64_t rows) { return blocks(rows, kThreads / kWarp); }

}  // namespace

template <class T>
void route(cuda::Stream& stream, const RouteArgs<T>& a) {
  cuda::launch(stream, route_kernel<T>, blocks(a.options.rows.tokens(), kThreads), kThreads, 0, a);
  cuda::launch(stream, route_statistics_kernel<T>, static_cast<unsigned>(a.options.rows.sequences),
               kThreads, 0, a);
}
template <class T>
void route_backward(cuda::Stream& stream, const RouteBackwardArgs<T>& a) {
  cuda::launch(stream, route_backward_kernel<T>, blocks(a.options.rows.tokens(), kThreads),
               kThreads, 0, a);
}
void sort_slots(cuda::Stream& stream, const SortSlotsArgs& a) {
  cuda::launch(stream, sort_slots_kernel, static_cast<unsigned>(a.experts + 1), kSortThreads,
               2 * kSortThreads / kWarp * sizeof(int), a);
}
template <class T>
void gather_slots(cuda::Stream& stream, const GatherSlotsArgs<T>& a) {
  over_rows(stream, a.rows, a.cols, Gather<T>{a});
}
template <class T>
void combine_slots(cuda::Stream& stream, const CombineSlotsArgs<T>& a) {
  over_rows(stream, a.tokens, a.cols, Combine<T>{a});
}
template <class T>
void weigh_slots(cuda::Stream& stream, const WeighSlotsArgs<T>& a) {
  cuda::launch(stream, weigh_slots_kernel<T>, blocks_of_warps(a.rows), kThreads, 0, a);
}
template <class T>
void gated_add(cuda::Stream& stream, const GatedAddArgs<T>& a) {
  over_rows(stream, a.rows, a.cols, AddGated<T>{a});
}
template <class T>
void gated_add_backward(cuda::Stream& stream, const GatedAddBackwardArgs<T>& a) {
  cuda::launch(stream, gated_add_backward_kernel<T>, blocks_of_warps(a.rows), kThreads, 0, a);
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

#define TFM_INSTANTIATE_ACCUM(T)                                                       \
  template void route(cuda::Stream&, const RouteArgs<T>&);                             \
  template void route_backward(cuda::Stream&, const RouteBackwardArgs<T>&);            \
  template void router_term(cuda::Stream&, const RouterTermArgs<T>&);                  \
  template void router_term_backward(cuda::Stream&, const RouterTermBackwardArgs<T>&); \
  template void sum_routing(cuda::Stream&, const SumRoutingArgs<T>&);                  \
  template void sum_routing_backward(cuda::Stream&, const SumRoutingBackwardArgs<T>&); \
  template void batch_balance(cuda::Stream&, const BatchBalanceArgs<T>&);              \
  template void batch_balance_backward(cuda::Stream&, const BatchBalanceBackwardArgs<T>&);
TFM_INSTANTIATE_ACCUM(float)
TFM_INSTANTIATE_ACCUM(double)
#define TFM_INSTANTIATE(T)                                                \
  template void gather_slots(cuda::Stream&, const GatherSlotsArgs<T>&);   \
  template void combine_slots(cuda::Stream&, const CombineSlotsArgs<T>&); \
  template void weigh_slots(cuda::Stream&, const WeighSlotsArgs<T>&);     \
  template void gated_add(cuda::Stream&, const GatedAddArgs<T>&);         \
  template void gated_add_backward(cuda::Stream&, const GatedAddBackwardArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
