// Token and position tables, rotary embedding; see packs.h.
#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/cuda/rotations.h"
#include "kernels/embedding.h"
#include "kernels/scratch.h"

namespace tfm::kernels {
namespace {

template <class T>
struct Lookup {
  EmbeddingArgs<T> a;
  __device__ void operator()(std::int64_t row, std::int64_t c, Part part) const {
    const std::int64_t id = a.ids[row];
    Accum<T> y[kPack] = {};
    if (id >= a.vocab_begin && id < a.vocab_end) {
      const auto x = load_pack(a.table + (id - a.vocab_begin) * a.cols + c, part);
      TFM_UNROLL
      for (int i = 0; i < kPack; ++i) y[i] = x[i] * a.scale;
    }
    store_pack(a.y + row * a.cols + c, part, y);
  }
};

// The gradient of a table: rows of the batch are sorted by the row of the table that they name,
// then by their own number; runs of one name are added up in that order, in parts of kChunk rows.
constexpr std::int64_t kTile = 2048;  // rows of the batch that a block sorts
constexpr std::int64_t kChunk = kEmbeddingChunk;

struct SortedRows {
  std::int32_t *names, *rows;  // by place: the row of the table, and the row of the batch
};

// Sorts each tile: a row's place is the number of rows before it. Rows that pass no gradient come
// last, as if they named row `none`. A block places kThreads rows of a tile.
template <class T>
__global__ void __launch_bounds__(kThreads)
    sort_tiles(EmbeddingBackwardArgs<T> a, std::int32_t none, SortedRows to) {
  std::int32_t* tile = cuda::shared_memory<std::int32_t>();
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads,
                     first = at / kTile * kTile;
  const int n = a.rows - first < kTile ? static_cast<int>(a.rows - first) : static_cast<int>(kTile);
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) {
    const std::int64_t id = a.ids[first + i];
    tile[i] = id < a.vocab_begin || id >= a.vocab_end || id == a.padding_idx
                  ? none
                  : static_cast<std::int32_t>(id - a.vocab_begin);
  }
  cuda::block_barrier();
  const int i = static_cast<int>(at - first) + static_cast<int>(threadIdx.x);
  if (i >= n) return;
  const std::int32_t own = tile[i];
  int place = 0;
  for (int j = 0; j < n; ++j) place += tile[j] < own + (j < i);
  to.names[first + place] = own;
  to.rows[first + place] = static_cast<std::int32_t>(first + i);
}

// Places among all tiles.
__global__ void __launch_bounds__(kThreads)
    merge_tiles(std::int64_t count, SortedRows from, SortedRows to) {
  std::int32_t* tile = cuda::shared_memory<std::int32_t>();
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x,
                     mine = blockIdx.x * kThreads / kTile;
  const std::int32_t own = at < count ? from.names[at] : 0;
  std::int64_t place = at % kTile;
  for (std::int64_t t = 0; t * kTile < count; ++t) {
    if (t == mine) continue;
    const int n =
        count - t * kTile < kTile ? static_cast<int>(count - t * kTile) : static_cast<int>(kTile);
    for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads)
      tile[i] = from.names[t * kTile + i];
    cuda::block_barrier();
    int before = 0;  // names that are less, or as little in a tile before
    for (int left = n; left > 0;) {
      const int half = left / 2;
      const bool less = tile[before + half] < own + (t < mine);
      before = less ? before + half + 1 : before;
      left = less ? left - half - 1 : half;
    }
    place += before;
    cuda::block_barrier();
  }
  if (at >= count) return;
  to.names[place] = own;
  to.rows[place] = from.rows[at];
}

// A block adds up the runs of its chunk. `partial` (chunks, 2, cols) gets what belongs to a run
// that began in a chunk before (first), or that begins here and goes on in the next (second).
template <class T>
__global__ void __launch_bounds__(kThreads)
    sum_chunks(EmbeddingBackwardArgs<T> a, std::int32_t none, SortedRows sorted,
               Accum<T>* partial) {
  constexpr int kBatch =
      32 / static_cast<int>(sizeof(T));  // rows whose loads are under way at once
  const std::int64_t begin = blockIdx.x * kChunk,
                     end = begin + kChunk < a.rows ? begin + kChunk : a.rows;
  const std::int32_t before = begin > 0 ? sorted.names[begin - 1] : -1,
                     after = end < a.rows ? sorted.names[end] : -1;
  for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x) * kPack; c < a.cols;
       c += static_cast<std::int64_t>(blockDim.x) * kPack) {
    const Part part = part_of(c, a.cols);
    Accum<T> sum[kPack] = {};
    for (std::int64_t p = begin; p < end && sorted.names[p] != none; p += kBatch) {
      Eight<T> dy[kBatch];
      TFM_UNROLL
      for (int b = 0; b < kBatch; ++b)
        if (p + b < end) dy[b] = load_pack(a.dy + sorted.rows[p + b] * a.cols + c, part);
      TFM_UNROLL
      for (int b = 0; b < kBatch; ++b) {
        const std::int32_t own = p + b < end ? sorted.names[p + b] : none;
        if (own == none) continue;
        TFM_UNROLL
        for (int i = 0; i < kPack; ++i) sum[i] += dy[b][i] * a.scale;
        if (p + b + 1 < end && sorted.names[p + b + 1] == own) continue;
        Accum<T>* parts = partial + blockIdx.x * 2 * a.cols + c;
        if (own == before)
          store_pack(parts, part, sum);
        else if (p + b + 1 == end && own == after)
          store_pack(parts + a.cols, part, sum);
        else
          store_pack(a.dtable + own * a.cols + c, part, sum, a.accumulate);
        TFM_UNROLL
        for (int i = 0; i < kPack; ++i) sum[i] = 0;
      }
    }
  }
}

// The block of the chunk in which a run of several begins adds up their parts.
template <class T>
__global__ void __launch_bounds__(kThreads)
    sum_long_runs(EmbeddingBackwardArgs<T> a, std::int32_t none, SortedRows sorted,
                  const Accum<T>* partial) {
  constexpr int kBatch = 8;
  const std::int64_t chunk = blockIdx.x, begin = chunk * kChunk, next = begin + kChunk;
  if (next >= a.rows) return;
  const std::int32_t own = sorted.names[next];
  if (own == none || sorted.names[next - 1] != own || (begin > 0 && sorted.names[begin - 1] == own))
    return;
  const auto goes_on = [&](std::int64_t k) {
    return k * kChunk < a.rows && sorted.names[k * kChunk] == own;
  };
  for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x) * kPack; c < a.cols;
       c += static_cast<std::int64_t>(blockDim.x) * kPack) {
    const Part part = part_of(c, a.cols);
    Accum<T> sum[kPack];
    const auto head = load_pack(partial + (chunk * 2 + 1) * a.cols + c, part);
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) sum[i] = head[i];
    for (std::int64_t k = chunk + 1; goes_on(k); k += kBatch) {
      Eight<Accum<T>> some[kBatch];
      TFM_UNROLL
      for (int b = 0; b < kBatch; ++b)
        some[b] = goes_on(k + b) ? load_pack(partial + (k + b) * 2 * a.cols + c, part)
                                 : Eight<Accum<T>>{};
      TFM_UNROLL
      for (int b = 0; b < kBatch; ++b) TFM_UNROLL
      for (int i = 0; i < kPack; ++i) sum[i] += some[b][i];
    }
    store_pack(a.dtable + own * a.cols + c, part, sum, a.accumulate);
  }
}

template <class T>
struct Zero {
  T* y;
  __device__ void operator()(std::int64_t at, Part part) const {
    const T zero[kPack] = {};
    store_pack(y + at, part, zero);
  }
};

template <class T>
struct AddPosition {
  PositionArgs<T> a;
  __device__ void operator()(std::int64_t row, std::int64_t c, Part part) const {
    const auto x = load_pack(a.x + row * a.cols + c, part);
    const auto position =
        load_pack(a.table + (a.first + (a.row_offset + row) % a.length) * a.cols + c, part);
    Accum<T> y[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) y[i] = x[i] + position[i];
    store_pack(a.y + row * a.cols + c, part, y);
  }
};

template <class T>
struct SumPosition {  // over rows of the table
  PositionBackwardArgs<T> a;
  __device__ void operator()(std::int64_t t, std::int64_t c, Part part) const {
    Accum<T> sum[kPack] = {};
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

// Units of a row: of each rotated head packs of the lower half of what turns, then of what does
// not; at last packs of the columns behind them.
template <class T>
struct Rotate {
  RotaryArgs<T> a;
  const Accum<T>* table;  // of rotations()
  // Columns; units of them; units of a head; units of all rotated heads.
  int half, turning_packs, head_packs, rotated;

  __device__ void operator()(std::int64_t row, std::int64_t at, Part) const {
    const int unit = static_cast<int>(at / kPack);
    if (unit >= rotated) {
      keep(row, a.rotated_heads * a.head_size + static_cast<std::int64_t>(unit - rotated) * kPack,
           a.cols);
      return;
    }
    const std::int64_t head = unit / head_packs * a.head_size;
    if (unit % head_packs >= turning_packs) {
      keep(row, head + a.turning + (unit % head_packs - turning_packs) * kPack, head + a.head_size);
      return;
    }
    const int i = unit % head_packs * kPack;
    const Part part = part_of(i, half);
    const std::int64_t c = head + i;
    const T* x = a.x + row * a.cols + c;
    const Accum<T>* angles = table + row % a.length * 2 * half + i;
    const auto low = load_pack(x, part), high = load_pack(x + half, part);
    const auto cosine = load_pack(angles, part), sine = load_pack(angles + half, part);
    const Accum<T> sign = a.inverse ? -1 : 1;
    put(row, c, part, [&](int k) { return low[k] * cosine[k] - high[k] * (sine[k] * sign); });
    put(row, c + half, part,
        [&](int k) { return high[k] * cosine[k] + low[k] * (sine[k] * sign); });
  }
  __device__ void keep(std::int64_t row, std::int64_t c, std::int64_t end) const {
    const Part part = part_of(c, end);
    const auto x = load_pack(a.x + row * a.cols + c, part);
    put(row, c, part, [&](int i) { return x[i]; });
  }
  template <class F>
  __device__ void put(std::int64_t row, std::int64_t c, Part part, F&& value) const {
    Accum<T> y[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) y[i] = value(i);
    store_pack(a.y + row * a.cols + c, part, y, a.accumulate);
  }
};

}  // namespace

template <class T>
void embedding(cuda::Stream& stream, const EmbeddingArgs<T>& a) {
  over_rows(stream, a.rows, a.cols, Lookup<T>{a});
}

template <class T>
void embedding_backward(cuda::Stream& stream, const EmbeddingBackwardArgs<T>& a) {
  if (!a.accumulate) over_array(stream, a.dtable, a.table_rows * a.cols, Zero<Accum<T>>{a.dtable});
  if (a.rows <= 0 || a.cols <= 0) return;
  const auto none = static_cast<std::int32_t>(a.vocab_end - a.vocab_begin);
  cuda::Scratch<std::int32_t> names(stream, 2 * a.rows), rows(stream, 2 * a.rows);
  const SortedRows tiles{names, rows}, all{names + a.rows, rows + a.rows};
  constexpr std::size_t kShared = kTile * sizeof(std::int32_t);
  const auto blocks = static_cast<unsigned>(ceil_div(a.rows, kThreads));
  cuda::launch(stream, sort_tiles<T>, blocks, kThreads, kShared, a, none, tiles);
  cuda::launch(stream, merge_tiles, blocks, kThreads, kShared, a.rows, tiles, all);
  const std::int64_t chunks = ceil_div(a.rows, kChunk);
  cuda::Scratch<Accum<T>> partial(stream, chunks * 2 * a.cols);
  const auto threads = static_cast<unsigned>(
      std::min<std::int64_t>(round_up(ceil_div(a.cols, kPack), kWarp), kThreads));
  cuda::launch(stream, sum_chunks<T>, static_cast<unsigned>(chunks), threads, 0, a, none, all,
               partial);
  cuda::launch(stream, sum_long_runs<T>, static_cast<unsigned>(chunks), threads, 0, a, none, all,
               partial);
}

template <class T>
void add_position(cuda::Stream& stream, const PositionArgs<T>& a) {
  over_rows(stream, a.rows, a.cols, AddPosition<T>{a});
}

template <class T>
void add_position_backward(cuda::Stream& stream, const PositionBackwardArgs<T>& a) {
  TFM_CHECK(a.length >= 1 && a.first + a.length <= a.table_rows,
            "the position table has " + std::to_string(a.table_rows) +
                " rows, but sequences have " + std::to_string(a.length));
  over_rows(stream, a.table_rows, a.cols, SumPosition<T>{a});
}

template <class T>
void rotary(cuda::Stream& stream, const RotaryArgs<T>& a) {
  TFM_CHECK(
      a.turning % 2 == 0 && a.turning <= a.head_size && a.rotated_heads * a.head_size <= a.cols,
      std::to_string(a.rotated_heads) + " heads of " + std::to_string(a.head_size) +
          " in a row of " + std::to_string(a.cols));
  if (a.rows <= 0) return;
  const std::int64_t half = a.turning / 2, positions = std::min(a.rows, a.length),
                     turning_packs = ceil_div(half, kPack),
                     head_packs = turning_packs + ceil_div(a.head_size - a.turning, kPack);
  const std::int64_t rotated = a.rotated_heads * head_packs,
                     copied = ceil_div(a.cols - a.rotated_heads * a.head_size, kPack);
  cuda::Scratch<Accum<T>> table(stream, std::max<std::int64_t>(1, positions * 2 * half));
  rotations<Accum<T>>(stream, {positions, a.row_offset, a.length, a.position_offset}, a.frequency,
                      a.factor, half, table);
  over_rows(stream, a.rows, (rotated + copied) * kPack,
            Rotate<T>{a, table, static_cast<int>(half), static_cast<int>(turning_packs),
                      static_cast<int>(head_packs), static_cast<int>(rotated)});
}

#define TFM_INSTANTIATE(T)                                                            \
  template void embedding(cuda::Stream&, const EmbeddingArgs<T>&);                    \
  template void embedding_backward(cuda::Stream&, const EmbeddingBackwardArgs<T>&);   \
  template void add_position(cuda::Stream&, const PositionArgs<T>&);                  \
  template void add_position_backward(cuda::Stream&, const PositionBackwardArgs<T>&); \
  template void rotary(cuda::Stream&, const RotaryArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
