// Plain vector operations; see packs.h.
#include <algorithm>

#include "kernels/cuda/column_fold.h"
#include "kernels/elementwise.h"
#include "kernels/scratch.h"

namespace tfm::kernels {
namespace {

template <class T>
struct Copy {
  CopyArgs<T> a;
  __device__ void operator()(std::int64_t at, Part part) const {
    const auto x = load_pack(a.x + at, part);
    Accum<T> y[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) y[i] = x[i] * a.scale;
    store_pack(a.y + at, part, y, a.accumulate);
  }
};

template <class T>
struct CopyRows {
  CopyRowsArgs<T> a;
  __device__ void operator()(std::int64_t row, std::int64_t c, Part part) const {
    const auto x = load_pack(a.x + row * a.x_stride + c, part);
    Accum<T> y[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) y[i] = x[i];
    store_pack(a.y + row * a.y_stride + c, part, y, a.accumulate);
  }
};

template <class From, class To>
struct ConvertRows {
  ConvertRowsArgs<From, To> a;
  __device__ void operator()(std::int64_t row, std::int64_t c, Part part) const {
    const auto x = load_pack(a.x + row * a.x_stride + c, part);
    Accum<To> y[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) y[i] = x[i];
    store_pack(a.y + row * a.y_stride + c, part, y, a.accumulate);
  }
};

template <class T>
struct Fill {
  FillArgs<T> a;
  __device__ void operator()(std::int64_t at, Part part) const {
    const Accum<T> value = cuda::widen<T>(a.value);
    const Accum<T> y[kPack] = {value, value, value, value, value, value, value, value};
    store_pack(a.y + at, part, y);
  }
};

template <class T>
struct AddBias {
  AddBiasArgs<T> a;
  __device__ void operator()(std::int64_t row, std::int64_t c, Part part) const {
    T* to = a.x + row * a.cols + c;
    const auto x = load_pack(to, part), bias = load_pack(a.bias + c, part);
    Accum<T> y[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) y[i] = x[i] + bias[i];
    store_pack(to, part, y);
  }
};

// Partial sums of a block of rows over a strip of 256 columns: a pack a lane, every eighth row a
// warp.
constexpr int kStrip = static_cast<int>(kColumnStrip), kRowGroups = kThreads / kWarp;
constexpr int kTogether = 4;  // rows that a thread loads at once
static_assert(kRowGroups == kPack && kStrip == kWarp * kPack);

template <class T>
__global__ void __launch_bounds__(kThreads)
    column_sum_kernel(ColumnSumArgs<T> a, std::int64_t rows_a_block, Accum<T>* partial) {
  using W = Accum<T>;
  W* shared = cuda::shared_memory<W>();  // (row groups, strip)
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            group = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t strip = static_cast<std::int64_t>(blockIdx.x) * kStrip,
                     c = strip + lane * kPack;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * rows_a_block,
                     end = begin + rows_a_block < a.rows ? begin + rows_a_block : a.rows;
  W sum[kPack] = {};
  if (c < a.cols) {
    const Part part = part_of(c, a.cols);
    std::int64_t r = begin + group;
    const auto row = [&](std::int64_t k) { return a.x + (r + k * kRowGroups) * a.stride + c; };
    if (part.full() && misalignment(a.x) == 0 && a.stride % kVector<T> == 0)
      for (; r + (kTogether - 1) * kRowGroups < end; r += kTogether * kRowGroups) {
        Eight<T> x[kTogether];
        TFM_UNROLL
        for (int k = 0; k < kTogether; ++k) x[k] = load_pack(row(k), Whole{});
        TFM_UNROLL
        for (int k = 0; k < kTogether; ++k)
          for (int i = 0; i < kPack; ++i) sum[i] += x[k][i];
      }
    for (; r < end; r += kRowGroups) {
      const auto x = load_pack(row(0), part);
      TFM_UNROLL
      for (int i = 0; i < kPack; ++i) sum[i] += x[i];
    }
  }
  TFM_UNROLL
  for (int i = 0; i < kPack; ++i) shared[group * kStrip + i * kWarp + lane] = sum[i];
  cuda::block_barrier();
  // This thread adds up one column: element threadIdx / 32 of the pack of its lane.
  const std::int64_t own = strip + lane * kPack + group;
  if (own >= a.cols) return;
  W total = shared[group * kWarp + lane];
  for (int g = 1; g < kRowGroups; ++g) total += shared[g * kStrip + group * kWarp + lane];
  partial[blockIdx.y * a.cols + own] = total;
}

}  // namespace

template <class T>
void copy(cuda::Stream& stream, const CopyArgs<T>& a) {
  if (a.x != a.y || a.accumulate || a.scale != Accum<T>{1})
    over_array(stream, a.y, a.n, Copy<T>{a});
}
template <class T>
void copy_rows(cuda::Stream& stream, const CopyRowsArgs<T>& a) {
  over_rows(stream, a.rows, a.cols, CopyRows<T>{a});
}
template <class From, class To>
void convert_rows(cuda::Stream& stream, const ConvertRowsArgs<From, To>& a) {
  over_rows(stream, a.rows, a.cols, ConvertRows<From, To>{a});
}
template <class T>
void fill(cuda::Stream& stream, const FillArgs<T>& a) {
  over_array(stream, a.y, a.n, Fill<T>{a});
}
template <class T>
void add_bias(cuda::Stream& stream, const AddBiasArgs<T>& a) {
  over_rows(stream, a.rows, a.cols, AddBias<T>{a});
}

template <class T>
void column_sum(cuda::Stream& stream, const ColumnSumArgs<T>& a) {
  if (a.cols <= 0) return;
  const auto [blocks, rows_a_block] = column_sum_partition(a.rows, a.cols);
  cuda::Scratch<Accum<T>> partial(stream, blocks * a.cols);
  cuda::launch(stream, column_sum_kernel<T>,
               dim3(static_cast<unsigned>(ceil_div(a.cols, kStrip)), static_cast<unsigned>(blocks)),
               kThreads, kRowGroups * kStrip * sizeof(Accum<T>), a, rows_a_block, partial);
  column_fold<Accum<T>>(stream, {{{partial, a.y, a.accumulate}}, blocks, a.cols, a.cols});
}

#define TFM_INSTANTIATE(T)                                          \
  template void copy(cuda::Stream&, const CopyArgs<T>&);            \
  template void copy_rows(cuda::Stream&, const CopyRowsArgs<T>&);   \
  template void fill(cuda::Stream&, const FillArgs<T>&);            \
  template void column_sum(cuda::Stream&, const ColumnSumArgs<T>&); \
  template void add_bias(cuda::Stream&, const AddBiasArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)
template void convert_rows(cuda::Stream&, const ConvertRowsArgs<float, float>&);
template void convert_rows(cuda::Stream&, const ConvertRowsArgs<double, double>&);
template void convert_rows(cuda::Stream&, const ConvertRowsArgs<float, bf16>&);
template void convert_rows(cuda::Stream&, const ConvertRowsArgs<float, f16>&);
template void convert_rows(cuda::Stream&, const ConvertRowsArgs<bf16, float>&);
template void convert_rows(cuda::Stream&, const ConvertRowsArgs<f16, float>&);

}  // namespace tfm::kernels
