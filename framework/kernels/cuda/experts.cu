// Rows on their way to experts and back; see packs.h.
#include "kernels/cuda/reductions.h"
#include "kernels/experts.inl"
#include "kernels/router.inl"

namespace tfm::kernels {
namespace {

constexpr int kSortThreads = 1024;

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

__global__ void __launch_bounds__(kThreads) send_slots_kernel(SendSlotsArgs a) {
  send_slot(a, std::int64_t{blockIdx.x} * kThreads + threadIdx.x);
}

__global__ void keep_most_kernel(KeepMostArgs a) { keep_most_of(a); }

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

unsigned blocks_of_warps(std::int64_t rows) {
  return static_cast<unsigned>(ceil_div(rows, kThreads / kWarp));
}

}  // namespace

void sort_slots(cuda::Stream& stream, const SortSlotsArgs& a) {
  cuda::launch(stream, sort_slots_kernel, static_cast<unsigned>(a.experts + 1), kSortThreads,
               2 * kSortThreads / kWarp * sizeof(int), a);
}
void send_slots(cuda::Stream& stream, const SendSlotsArgs& a) {
  const std::int64_t n = std::max(a.slots, a.ranks * a.room);
  cuda::launch(stream, send_slots_kernel, static_cast<unsigned>(ceil_div(n, kThreads)), kThreads, 0,
               a);
}
void keep_most(cuda::Stream& stream, const KeepMostArgs& a) {
  cuda::launch(stream, keep_most_kernel, 1, 1, 0, a);
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
#define TFM_INSTANTIATE(T)                                                \
  template void gather_slots(cuda::Stream&, const GatherSlotsArgs<T>&);   \
  template void combine_slots(cuda::Stream&, const CombineSlotsArgs<T>&); \
  template void weigh_slots(cuda::Stream&, const WeighSlotsArgs<T>&);     \
  template void gated_add(cuda::Stream&, const GatedAddArgs<T>&);         \
  template void gated_add_backward(cuda::Stream&, const GatedAddBackwardArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
