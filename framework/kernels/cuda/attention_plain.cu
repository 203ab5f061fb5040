// Attention in plain arithmetic for any type and head size: a warp owns a few rows, and its lanes
// take turns as columns of the scores and as elements of a head.
#include <cmath>

#include "kernels/cuda/attention_diagonals.h"

namespace tfm::kernels::gpu {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps, kColumns = 32, kSlots = kMostHeadSize / 32;
template <class T>
constexpr int kRows = kPlainRows<T>;  // of a block
template <class T>
constexpr int kOfWarp = kRows<T> / kWarps;

template <class W>
__device__ W infinity() {
  return std::numeric_limits<W>::infinity();
}

// Rows [first, first + n) in Accum<T>, `pitch` apart; zeros from row `end` on.
template <class T>
__device__ void load_rows(Accum<T>* to, int pitch, const T* from, std::int64_t stride, int first,
                          int n, int end, int size) {
  for (int i = threadIdx.x; i < n * size; i += kThreads) {
    const int row = i / size, element = i % size;
    to[row * pitch + element] =
        first + row < end ? cuda::widen(from[(first + row) * stride + element]) : Accum<T>{0};
  }
}

template <class W>
__device__ W product(const W* x, const W* y, int size) {
  W sum = 0;
  for (int i = 0; i < size; ++i) sum += x[i] * y[i];
  return sum;
}

// sum (elements of a head, one in 32 a lane) += sum over columns of factor[column] *
// values[column].
template <class W>
__device__ void add_columns(W (&sum)[kSlots], const W* factor, const W* values, int pitch,
                            int size) {
  const int lane = threadIdx.x % 32;
  for (int c = 0; c < kColumns; ++c)
    TFM_UNROLL for (int slot = 0; slot < kSlots; ++slot) if (slot * 32 + lane < size) sum[slot] +=
        factor[c] * values[c * pitch + slot * 32 + lane];
}

template <class T>
__device__ void store_row(T* to, const Accum<T> (&sum)[kSlots], Accum<T> factor, int size) {
  const int lane = threadIdx.x % 32;
  TFM_UNROLL for (int slot = 0; slot < kSlots; ++slot) if (slot * 32 + lane < size)
      to[slot * 32 + lane] = cuda::narrow<T>(sum[slot] * factor);
}

// tanh of a scaled product's share of the cap; 0: there is none.
template <class T>
__device__ Accum<T> share_of_cap(const AttentionArgs<T>& a, Accum<T> product) {
  return a.softcap > 0 ? std::tanh(product * a.scale / a.softcap) : Accum<T>{0};
}
// The score of one pair from its product; -inf where hidden.
template <class T, bool Landmarks>
__device__ Accum<T> score_of(const Head<T, Landmarks>& head, int t, int s, Accum<T> product) {
  if (!head.mask.sees(t, s) || !head.mask.same(head.q_segment(t), head.k_segment(s)))
    return -infinity<Accum<T>>();
  const AttentionArgs<T>& a = head.a;
  Accum<T> bias = a.bias ? head.bias()[s - t] : Accum<T>{0};
  if constexpr (Landmarks)
    if (const auto& visible = head.mask.visible;
        visible.beyond.repeated(t + visible.query_at, s + visible.key_at))
      bias += std::log(static_cast<Accum<T>>(1 + visible.beyond.random));
  if (a.softcap > 0) return a.softcap * share_of_cap(a, product) + bias;
  return product * a.scale + bias;
}
// 0, or what a kept weight is multiplied with.
template <class T, bool Landmarks>
__device__ Accum<T> dropout_factor(const Head<T, Landmarks>& head, int t, int s) {
  if (!(head.a.dropout.p > 0)) return 1;
  return Dropped(head).four(t, s & ~3) >> (s & 3) & 1 ? head.a.dropout.scale() : 0.0f;
}

template <class W>
__device__ W largest_of_warp(W x) {
  for (int mask = 16; mask > 0; mask /= 2) x = std::max(x, cuda::shuffle_xor(x, mask));
  return x;
}
template <class W>
__device__ W sum_of_warp(W x) {
  for (int mask = 16; mask > 0; mask /= 2) x += cuda::shuffle_xor(x, mask);
  return x;
}

template <class T, bool Landmarks>
__global__ void __launch_bounds__(kThreads, 2)
    forward(const __grid_constant__ AttentionArgs<T> a, const std::int32_t* real) {
  using W = Accum<T>;
  const Head<T, Landmarks> head(a, real, blockIdx.z, blockIdx.y);
  const int size = static_cast<int>(a.head_size), pitch = size + 1, first = blockIdx.x * kRows<T>,
            own = threadIdx.x / 32 * kOfWarp<T>;
  const int lane = threadIdx.x % 32;
  const Tiles tiles = head.mask.template keys_of<kColumns>(first, kRows<T>);
  W* q = cuda::shared_memory<W>();                     // (kRows, size)
  W* k = q + kRows<T> * size;                          // (kColumns, pitch)
  W* v = k + kColumns * pitch;                         // (kColumns, pitch)
  W* weights = v + kColumns * pitch + own * kColumns;  // (kRows, kColumns), this warp's
  W sum[kOfWarp<T>] = {}, max[kOfWarp<T>], out[kOfWarp<T>][kSlots] = {};
  TFM_UNROLL for (int r = 0; r < kOfWarp<T>; ++r) max[r] = -infinity<W>();
  load_rows(q, size, a.q + head.q_at(), a.q_stride, first, kRows<T>, head.mask.queries, size);
  for (int s0 = tiles.begin; s0 < tiles.end;
       s0 = head.mask.template keys_after<kColumns>(first, kRows<T>, s0 + kColumns)) {
    cuda::block_barrier();  // nobody needs the last tile any more
    load_rows(k, pitch, a.k + head.kv_at(), a.kv_stride, s0, kColumns, tiles.end, size);
    load_rows(v, pitch, a.v + head.kv_at(), a.kv_stride, s0, kColumns, tiles.end, size);
    cuda::block_barrier();  // this tile is there
    TFM_UNROLL for (int r = 0; r < kOfWarp<T>; ++r) {
      const int t = first + own + r, s = s0 + lane;
      const W score = score_of(head, t, s, product(q + (own + r) * size, k + lane * pitch, size));
      const W top = std::max(max[r], largest_of_warp(score)),
              base = top == -infinity<W>() ? W{0} : top;
      const W weight = std::exp(score - base), rescale = std::exp(max[r] - base);
      max[r] = top;
      sum[r] = sum[r] * rescale + weight;
      weights[r * kColumns + lane] = weight * dropout_factor(head, t, s);
      TFM_UNROLL for (int slot = 0; slot < kSlots; ++slot) out[r][slot] *= rescale;
    }
    cuda::warp_barrier();  // weights are there
    TFM_UNROLL for (int r = 0; r < kOfWarp<T>; ++r)
        add_columns(out[r], weights + r * kColumns, v, pitch, size);
  }
  TFM_UNROLL for (int r = 0; r < kOfWarp<T>; ++r) {
    const int t = first + own + r;
    const W all = sum_of_warp(sum[r]);
    if (t >= head.mask.queries) continue;
    store_row<T>(a.out + head.out_at() + t * a.out_stride, out[r], all > 0 ? 1 / all : W{0}, size);
    if (lane == 0) a.lse[head.lse_at() + t] = all > 0 ? max[r] + std::log(all) : -infinity<W>();
  }
}

// Gradients of keys and values (rows are keys, columns the queries of one head after another) or of
// queries (rows are queries): of each side the rows' two matrices, the columns' two, and the
// gradients of the rows.
template <class T, bool OfKeys>
struct Side {
  const T *first, *second;
  std::int64_t first_stride, second_stride;
  template <bool Landmarks>
  __device__ Side(const AttentionBackwardArgs<T>& g, const Head<T, Landmarks>& head)
      : first(OfKeys ? g.forward.k + head.kv_at() : g.forward.q + head.q_at()),
        second(OfKeys ? g.forward.v + head.kv_at() : g.dout + head.out_at()),
        first_stride(OfKeys ? g.forward.kv_stride : g.forward.q_stride),
        second_stride(OfKeys ? g.forward.kv_stride : g.forward.out_stride) {}
};

// The tiles that a block shares: rows' and columns' matrices, dropped weights or gradients of
// scores, gradients of scaled products, and the carry of diagonals.
template <class W>
struct Shared {
  static constexpr int kPitch = kColumns + 1, kTileRows = kPlainRows<W>;
  int size = 0, pitch = size + 1;
  W* row_first = cuda::shared_memory<W>();       // (kTileRows, size)
  W* row_second = row_first + kTileRows * size;  // (kTileRows, size)
  W* first = row_second + kTileRows * size;      // (kColumns, pitch)
  W* second = first + kColumns * pitch;          // (kColumns, pitch)
  W* weights = second + kColumns * pitch;        // (kTileRows, kPitch)
  W* gradients = weights + kTileRows * kPitch;   // (kTileRows, kPitch)
  W* carry = gradients + kTileRows * kPitch;     // (2, kTileRows)
  static std::size_t bytes(std::int64_t size) {
    return (2 * kTileRows * size + 2 * kColumns * (size + 1) + 2 * kTileRows * (kPitch + 1)) *
           sizeof(W);
  }
};

// One tile of gradients of scaled products and of weights or, where rows are queries, of gradients
// of scores, which a bias has: this warp's rows.
template <class T, bool KeysAreRows, bool Landmarks>
__device__ void tile_gradients(const Shared<Accum<T>>& shared, const Head<T, Landmarks>& head,
                               const Accum<T>* delta, int row0, int column0, int own) {
  using W = Accum<T>;
  const int lane = threadIdx.x % 32;
  TFM_UNROLL for (int r = 0; r < kOfWarp<T>; ++r) {
    const int row = row0 + own + r, t = KeysAreRows ? column0 + lane : row,
              s = KeysAreRows ? row : column0 + lane, at = (own + r) * shared.kPitch + lane;
    const W own_product = product(shared.row_first + (own + r) * shared.size,
                                  shared.first + lane * shared.pitch, shared.size),
            score = score_of(head, t, s, own_product), share = share_of_cap(head.a, own_product);
    W weight = 0, factor = 0, gradient = 0;
    if (score > -infinity<W>()) {
      weight = std::exp(score - head.a.lse[head.lse_at() + t]);
      factor = dropout_factor(head, t, s);
      const W of_weight = product(shared.row_second + (own + r) * shared.size,
                                  shared.second + lane * shared.pitch, shared.size);
      gradient = weight * (of_weight * factor - delta[head.lse_at() + t]);
    }
    shared.weights[at] = KeysAreRows ? weight * factor : gradient;
    shared.gradients[at] = gradient * (1 - share * share);
  }
}

template <class T, bool Landmarks>
__global__ void __launch_bounds__(kThreads, 2)
    backward_keys(const __grid_constant__ AttentionBackwardArgs<T> g,
                  const __grid_constant__ BackwardScratch<T> scratch) {
  using W = Accum<T>;
  const AttentionArgs<T>& a = g.forward;
  const Shared<W> shared{static_cast<int>(a.head_size)};
  const int size = shared.size, first = blockIdx.x * kRows<T>, own = threadIdx.x / 32 * kOfWarp<T>,
            group = static_cast<int>(a.heads / a.kv_heads);
  const Head<T, Landmarks> head0(a, scratch.real, blockIdx.z, blockIdx.y * group);
  const Side<T, true> rows(g, head0);
  load_rows(shared.row_first, size, rows.first, rows.first_stride, first, kRows<T>, head0.mask.keys,
            size);
  load_rows(shared.row_second, size, rows.second, rows.second_stride, first, kRows<T>,
            head0.mask.keys, size);
  W dk[kOfWarp<T>][kSlots] = {}, dv[kOfWarp<T>][kSlots] = {};
  const Tiles tiles = head0.mask.template queries_of<kColumns>(first, kRows<T>);
  for (int h = 0; h < group; ++h) {
    const Head<T, Landmarks> head(a, scratch.real, blockIdx.z, blockIdx.y * group + h);
    const Side<T, false> columns(g, head);
    for (int t0 = tiles.begin; t0 < tiles.end;
         t0 = head.mask.template queries_after<kColumns>(first, kRows<T>, t0 + kColumns)) {
      cuda::block_barrier();  // nobody needs the last tile any more
      load_rows(shared.first, shared.pitch, columns.first, columns.first_stride, t0, kColumns,
                head.mask.queries, size);
      load_rows(shared.second, shared.pitch, columns.second, columns.second_stride, t0, kColumns,
                head.mask.queries, size);
      cuda::block_barrier();  // this tile is there
      tile_gradients<T, true>(shared, head, scratch.delta, first, t0, own);
      cuda::warp_barrier();  // weights and gradients are there
      TFM_UNROLL for (int r = 0; r < kOfWarp<T>; ++r) {
        add_columns(dv[r], shared.weights + (own + r) * shared.kPitch, shared.second, shared.pitch,
                    size);
        add_columns(dk[r], shared.gradients + (own + r) * shared.kPitch, shared.first, shared.pitch,
                    size);
      }
    }
  }
  TFM_UNROLL for (int r = 0; r < kOfWarp<T>; ++r) {
    const int s = first + own + r;
    if (s >= head0.mask.keys) continue;
    store_row<T>(g.dk + head0.kv_at() + s * a.kv_stride, dk[r], a.scale, size);
    store_row<T>(g.dv + head0.kv_at() + s * a.kv_stride, dv[r], W{1}, size);
  }
}

template <class T, bool Landmarks>
__global__ void __launch_bounds__(kThreads, 2)
    backward_queries(const __grid_constant__ AttentionBackwardArgs<T> g,
                     const __grid_constant__ BackwardScratch<T> scratch) {
  using W = Accum<T>;
  const AttentionArgs<T>& a = g.forward;
  const Shared<W> shared{static_cast<int>(a.head_size)};
  const Head<T, Landmarks> head(a, scratch.real, blockIdx.z, blockIdx.y);
  const int size = shared.size, first = blockIdx.x * kRows<T>, own = threadIdx.x / 32 * kOfWarp<T>;
  const Tiles tiles = head.mask.template keys_of<kColumns>(first, kRows<T>);
  const Side<T, false> rows(g, head);
  const Side<T, true> columns(g, head);
  W* diagonals = diagonals_of_block(scratch);
  load_rows(shared.row_first, size, rows.first, rows.first_stride, first, kRows<T>,
            head.mask.queries, size);
  load_rows(shared.row_second, size, rows.second, rows.second_stride, first, kRows<T>,
            head.mask.queries, size);
  W dq[kOfWarp<T>][kSlots] = {};
  // Sums of diagonals go on from tile to tile.
  const auto after = [&](int s) {
    return diagonals ? s : head.mask.template keys_after<kColumns>(first, kRows<T>, s);
  };
  for (int j = 0, s0 = tiles.begin; s0 < tiles.end; ++j, s0 = after(s0 + kColumns)) {
    cuda::block_barrier();  // nobody needs the last tile any more
    load_rows(shared.first, shared.pitch, columns.first, columns.first_stride, s0, kColumns,
              tiles.end, size);
    load_rows(shared.second, shared.pitch, columns.second, columns.second_stride, s0, kColumns,
              tiles.end, size);
    cuda::block_barrier();  // this tile is there
    tile_gradients<T, false>(shared, head, scratch.delta, first, s0, own);
    cuda::warp_barrier();  // this warp's gradients are there
    TFM_UNROLL for (int r = 0; r < kOfWarp<T>; ++r) add_columns(
        dq[r], shared.gradients + (own + r) * shared.kPitch, shared.first, shared.pitch, size);
    if (diagonals) {
      cuda::block_barrier();  // all gradients are there
      add_diagonals<kRows<T>, kColumns>(shared.weights, shared.kPitch, shared.carry,
                                        diagonals + tiles.begin, j, threadIdx.x, kThreads);
    }
  }
  TFM_UNROLL for (int r = 0; r < kOfWarp<T>; ++r) {
    const int t = first + own + r;
    if (t < head.mask.queries)
      store_row<T>(g.dq + head.q_at() + t * a.q_stride, dq[r], a.scale, size);
  }
  if (!diagonals) return;
  cuda::block_barrier();  // the carry is there
  finish_diagonals<kRows<T>, kColumns>(shared.carry, diagonals, scratch.width, tiles, threadIdx.x,
                                       kThreads);
}

template <class T>
dim3 grid_of(const AttentionArgs<T>& a, std::int64_t n, std::int64_t heads) {
  return dim3(static_cast<unsigned>(ceil_div(n, kRows<T>)), static_cast<unsigned>(heads),
              static_cast<unsigned>(a.batch));
}

}  // namespace

template <class T>
void plain_forward(cuda::Stream& stream, const AttentionArgs<T>& a, const std::int32_t* real) {
  const std::size_t bytes =
      (kRows<T> * (a.head_size + kColumns) + 2 * kColumns * (a.head_size + 1)) * sizeof(Accum<T>);
  with_flag(a.has_landmarks(), [&]<bool Landmarks>() {
    cuda::launch(stream, forward<T, Landmarks>, grid_of(a, a.queries, a.heads), kThreads, bytes, a,
                 real);
  });
}

template <class T>
void plain_backward(cuda::Stream& stream, const AttentionBackwardArgs<T>& g,
                    const BackwardScratch<T>& scratch) {
  const AttentionArgs<T>& a = g.forward;
  const std::size_t bytes = Shared<Accum<T>>::bytes(a.head_size);
  with_flag(a.has_landmarks(), [&]<bool Landmarks>() {
    if (a.keys > 0)
      cuda::launch(stream, backward_keys<T, Landmarks>, grid_of(a, a.keys, a.kv_heads), kThreads,
                   bytes, g, scratch);
    if (a.queries > 0)
      cuda::launch(stream, backward_queries<T, Landmarks>, grid_of(a, a.queries, a.heads), kThreads,
                   bytes, g, scratch);
  });
}

#define TFM_INSTANTIATE(T)                                                                  \
  template void plain_forward(cuda::Stream&, const AttentionArgs<T>&, const std::int32_t*); \
  template void plain_backward(cuda::Stream&, const AttentionBackwardArgs<T>&,              \
                               const BackwardScratch<T>&);
TFM_INSTANTIATE(float)
TFM_INSTANTIATE(double)
TFM_INSTANTIATE(bf16)
TFM_INSTANTIATE(f16)

}  // namespace tfm::kernels::gpu
