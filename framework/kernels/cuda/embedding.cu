// Token and position tables, rotary embedding; see packs.h. Gradients of a table's row are added in the order of the batch's rows.
#include "kernels/embedding.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/cuda/packs.h"

namespace tfm::kernels {
namespace {

template <class T> struct Lookup {
  EmbeddingArgs<T> a;
  __device__ void operator()(std::int64_t row, std::int64_t c, Part part) const {
    const std::int64_t id = a.ids[row];
    Wide<T> y[kPack] = {};
    if (id >= a.vocab_begin && id < a.vocab_end) {
      const auto x = load_pack(a.table + (id - a.vocab_begin) * a.cols + c, part);
      TFM_UNROLL
      for (int i = 0; i < kPack; ++i) y[i] = x[i] * a.scale;
    }
    store_pack(a.y + row * a.cols + c, part, y);
  }
};

// Row r of the batch to its place in the order of (row of the table, r): place = number of rows before it. Rows that pass no
// gradient come last, as if they named row `none`. Every pair of rows is compared.
template <class T>
__global__ void __launch_bounds__(kThreads) order_kernel(EmbeddingBackwardArgs<T> a, std::int32_t none, std::int32_t* order, std::int32_t* sorted) {
  std::int32_t* tile = cuda::shared_memory<std::int32_t>();  // rows of the table that 256 rows of the batch name
  auto named = [&](std::int64_t r) {
    const std::int64_t id = r < a.rows ? a.ids[r] : -1;
    return id < a.vocab_begin || id >= a.vocab_end || id == a.padding_idx ? none : static_cast<std::int32_t>(id - a.vocab_begin);
  };
  const std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int32_t own = named(r);
  std::int32_t place = 0;
  for (std::int64_t first = 0; first < a.rows; first += kThreads) {
    tile[threadIdx.x] = named(first + threadIdx.x);
    cuda::block_barrier();
    const int n = a.rows - first < kThreads ? static_cast<int>(a.rows - first) : kThreads;
    if (first == blockIdx.x * static_cast<std::int64_t>(kThreads)) {
      for (int i = 0; i < n; ++i) place += tile[i] < own + (i < static_cast<int>(threadIdx.x));
    } else {  // all of these rows are before row r, or all after it
      const std::int32_t below = own + (first < r);
      for (int i = 0; i < n; ++i) place += tile[i] < below;
    }
    cuda::block_barrier();
  }
  if (r >= a.rows) return;
  order[place] = static_cast<std::int32_t>(r);
  sorted[place] = own;
}

// The first of the rows that name one row of the table adds them all up. Loads of kBatch rows are under way at once.
template <class T>
__global__ void __launch_bounds__(kThreads)
    scatter_kernel(EmbeddingBackwardArgs<T> a, std::int32_t none, const std::int32_t* order, const std::int32_t* sorted) {
  constexpr int kBatch = 32 / static_cast<int>(sizeof(T));
  const std::int64_t first = blockIdx.x;
  const std::int32_t own = sorted[first];
  if (own == none || (first > 0 && sorted[first - 1] == own)) return;
  for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x) * kPack; c < a.cols; c += static_cast<std::int64_t>(blockDim.x) * kPack) {
    const Part part = part_of(c, a.cols);
    Wide<T>* to = a.dtable + own * a.cols + c;
    Wide<T> sum[kPack] = {};
    if (a.accumulate) {
      const auto before = load_pack(to, part);
      TFM_UNROLL
      for (int i = 0; i < kPack; ++i) sum[i] = before[i];
    }
    for (std::int64_t p = first; p < a.rows && sorted[p] == own; p += kBatch) {
      Eight<T> dy[kBatch];
      bool there[kBatch];
      TFM_UNROLL
      for (int b = 0; b < kBatch; ++b) {
        there[b] = p + b < a.rows && sorted[p + b] == own;
        if (there[b]) dy[b] = load_pack(a.dy + order[p + b] * a.cols + c, part);
      }
      TFM_UNROLL
      for (int b = 0; b < kBatch; ++b)
        if (there[b]) {
          TFM_UNROLL
          for (int i = 0; i < kPack; ++i) sum[i] += dy[b][i] * a.scale;
        }
    }
    store_pack(to, part, sum);
  }
}

template <class T> struct Zero {
  T* y;
  __device__ void operator()(std::int64_t at, Part part) const {
    const T zero[kPack] = {};
    store_pack(y + at, part, zero);
  }
};

template <class T> struct AddPosition {
  PositionArgs<T> a;
  __device__ void operator()(std::int64_t row, std::int64_t c, Part part) const {
    const auto x = load_pack(a.x + row * a.cols + c, part);
    const auto position = load_pack(a.table + (a.first + (a.row_offset + row) % a.length) * a.cols + c, part);
    Wide<T> y[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) y[i] = x[i] + position[i];
    store_pack(a.y + row * a.cols + c, part, y);
  }
};

template <class T> struct SumPosition {  // over rows of the table
  PositionBackwardArgs<T> a;
  __device__ void operator()(std::int64_t t, std::int64_t c, Part part) const {
    Wide<T> sum[kPack] = {};
    const std::int64_t first = (t - a.first - a.row_offset % a.length + a.length) % a.length;
    if (t >= a.first && t < a.first + a.length)
      for (std::int64_t r = first; r < a.rows; r += a.length) {
        const auto dy = load_pack(a.dy + r * a.cols + c, part);
        TFM_UNROLL
        for (int i = 0; i < kPack; ++i) sum[i] += dy[i];
      }
    store_pack(a.dtable + t * a.cols + c, part, sum, a.accumulate);
  }
};

// table (positions, 2, half): cosines and sines of the positions of rows 0, 1, ...
template <class T> __global__ void __launch_bounds__(kThreads) angle_kernel(RotaryArgs<T> a, std::int64_t positions, Wide<T>* table) {
  const std::int64_t half = a.head_size / 2, i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= positions * half) return;
  const std::int64_t r = i / half;
  const double position = static_cast<double>((a.row_offset + r) % a.length + a.position_offset), angle = position * a.frequency[i % half];
  table[r * 2 * half + i % half] = static_cast<Wide<T>>(::cos(angle));
  table[(r * 2 + 1) * half + i % half] = static_cast<Wide<T>>(::sin(angle));
}

// Units of a row: packs of the lower halves of the rotated heads, then packs of what is copied.
template <class T> struct Rotate {
  RotaryArgs<T> a;
  const Wide<T>* table;
  int half, head_packs, rotated;  // columns; units of a head; units of all rotated heads

  __device__ void operator()(std::int64_t row, std::int64_t at, Part) const {
    const int unit = static_cast<int>(at / kPack);
    if (unit >= rotated) {
      const std::int64_t c = a.rotated_heads * a.head_size + static_cast<std::int64_t>(unit - rotated) * kPack;
      const Part part = part_of(c, a.cols);
      const auto x = load_pack(a.x + row * a.cols + c, part);
      put(row, c, part, [&](int i) { return x[i]; });
      return;
    }
    const int i = unit % head_packs * kPack;
    const Part part = part_of(i, half);
    const std::int64_t c = unit / head_packs * a.head_size + i;
    const T* x = a.x + row * a.cols + c;
    const Wide<T>* angles = table + row % a.length * 2 * half + i;
    const auto low = load_pack(x, part), high = load_pack(x + half, part);
    const auto cosine = load_pack(angles, part), sine = load_pack(angles + half, part);
    const Wide<T> sign = a.inverse ? -1 : 1;
    put(row, c, part, [&](int k) { return low[k] * cosine[k] - high[k] * (sine[k] * sign); });
    put(row, c + half, part, [&](int k) { return high[k] * cosine[k] + low[k] * (sine[k] * sign); });
  }
  template <class F> __device__ void put(std::int64_t row, std::int64_t c, Part part, F&& value) const {
    Wide<T> y[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) y[i] = value(i);
    store_pack(a.y + row * a.cols + c, part, y, a.accumulate);
  }
};

}  // namespace

template <class T> void embedding(cuda::Stream& stream, const EmbeddingArgs<T>& a) { over_rows(stream, a.rows, a.cols, Lookup<T>{a}); }

template <class T> void embedding_backward(cuda::Stream& stream, const EmbeddingBackwardArgs<T>& a) {
  if (!a.accumulate) over_array(stream, a.dtable, a.table_rows * a.cols, Zero<Wide<T>>{a.dtable});
  if (a.rows <= 0 || a.cols <= 0) return;
  const auto none = static_cast<std::int32_t>(a.vocab_end - a.vocab_begin);
  cuda::Scratch<std::int32_t> order(stream, a.rows), sorted(stream, a.rows);
  cuda::launch(stream, order_kernel<T>, static_cast<unsigned>(ceil_div(a.rows, kThreads)), kThreads, kThreads * sizeof(std::int32_t), a, none, order,
               sorted);
  const auto threads = static_cast<unsigned>(std::min<std::int64_t>(round_up(ceil_div(a.cols, kPack), kWarp), kThreads));
  cuda::launch(stream, scatter_kernel<T>, static_cast<unsigned>(a.rows), threads, 0, a, none, order, sorted);
}

template <class T> void add_position(cuda::Stream& stream, const PositionArgs<T>& a) { over_rows(stream, a.rows, a.cols, AddPosition<T>{a}); }

template <class T> void add_position_backward(cuda::Stream& stream, const PositionBackwardArgs<T>& a) {
  TFM_CHECK(a.length >= 1 && a.first + a.length <= a.table_rows,
            "the position table has " + std::to_string(a.table_rows) + " rows, sequences have " + std::to_string(a.length));
  over_rows(stream, a.table_rows, a.cols, SumPosition<T>{a});
}

template <class T> void rotary(cuda::Stream& stream, const RotaryArgs<T>& a) {
  TFM_CHECK(a.head_size % 2 == 0 && a.rotated_heads * a.head_size <= a.cols,
            std::to_string(a.rotated_heads) + " heads of " + std::to_string(a.head_size) + " in a row of " + std::to_string(a.cols));
  if (a.rows <= 0) return;
  const std::int64_t half = a.head_size / 2, positions = std::min(a.rows, a.length), head_packs = ceil_div(half, kPack);
  const std::int64_t rotated = a.rotated_heads * head_packs, copied = ceil_div(a.cols - a.rotated_heads * a.head_size, kPack);
  cuda::Scratch<Wide<T>> table(stream, std::max<std::int64_t>(1, positions * 2 * half));
  if (half > 0) cuda::launch(stream, angle_kernel<T>, static_cast<unsigned>(ceil_div(positions * half, kThreads)), kThreads, 0, a, positions, table);
  over_rows(stream, a.rows, (rotated + copied) * kPack,
            Rotate<T>{a, table, static_cast<int>(half), static_cast<int>(head_packs), static_cast<int>(rotated)});
}

#define TFM_INSTANTIATE(T)                                                            \
  template void embedding(cuda::Stream&, const EmbeddingArgs<T>&);                    \
  template void embedding_backward(cuda::Stream&, const EmbeddingBackwardArgs<T>&);   \
  template void add_position(cuda::Stream&, const PositionArgs<T>&);                  \
  template void add_position_backward(cuda::Stream&, const PositionBackwardArgs<T>&); \
  template void rotary(cuda::Stream&, const RotaryArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
