#pragma once
// Sums of the columns of a matrix, which is read or made on the way: partial sums of row blocks,
// then column_fold.
#include "kernels/cuda/column_fold.h"
#include "kernels/elementwise.h"
#include "kernels/scratch.h"

namespace tfm::kernels {

// A source of packs, which begin at element `at` of the matrix. `load` starts what `pack` waits
// for: a thread loads kTogether packs before it takes the first. kBlocks: thread blocks that the
// registers of a multiprocessor must suffice for; 0: the compiler decides.
template <class T>
struct ReadColumns {
  using Loaded = Eight<T>;
  static constexpr int kTogether = 4, kBlocks = 0;
  const T* x;
  __device__ bool aligned() const { return misalignment(x) == 0; }
  template <class P>
  __device__ Loaded load(std::int64_t at, P part) const {
    return load_pack(x + at, part);
  }
  template <class P>
  __device__ Eight<T> pack(std::int64_t, P, const Loaded& loaded) const {
    return loaded;
  }
};

// Partial sums of a block of rows over a strip of 256 columns: a pack a lane, every eighth row a
// warp.
inline constexpr int kStrip = static_cast<int>(kColumnStrip), kRowGroups = kThreads / kWarp;
static_assert(kRowGroups == kPack && kStrip == kWarp * kPack);

template <class T, class Source>
__global__ void __launch_bounds__(kThreads, Source::kBlocks)
    column_sum_kernel(ColumnSumArgs<T> a, Source source, std::int64_t rows_a_block,
                      Accum<T>* partial) {
  using W = Accum<T>;
  constexpr int kTogether = Source::kTogether;
  W* shared = cuda::shared_memory<W>();  // (row groups, strip)
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            group = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t strip = static_cast<std::int64_t>(blockIdx.x) * kStrip,
                     c = strip + lane * kPack;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * rows_a_block,
                     end = begin + rows_a_block < a.rows ? begin + rows_a_block : a.rows;
  W sum[kPack] = {};
  const auto add = [&](const Eight<T>& x) {
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) sum[i] += x[i];
  };
  if (c < a.cols) {
    const Part part = part_of(c, a.cols);
    std::int64_t r = begin + group;
    const auto at = [&](std::int64_t k) { return (r + k * kRowGroups) * a.stride + c; };
    if (part.full() && source.aligned() && a.stride % kVector<T> == 0)
      for (; r + (kTogether - 1) * kRowGroups < end; r += kTogether * kRowGroups) {
        typename Source::Loaded loaded[kTogether];
        TFM_UNROLL
        for (int k = 0; k < kTogether; ++k) loaded[k] = source.load(at(k), Whole{});
        TFM_UNROLL
        for (int k = 0; k < kTogether; ++k) add(source.pack(at(k), Whole{}, loaded[k]));
      }
    for (; r < end; r += kRowGroups) add(source.pack(at(0), part, source.load(at(0), part)));
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

// The sum of a.x, of which `source` makes the packs.
template <class T, class Source>
void column_sum(cuda::Stream& stream, const ColumnSumArgs<T>& a, const Source& source) {
  if (a.cols <= 0) return;
  const auto [blocks, rows_a_block] = column_sum_partition(a.rows, a.cols);
  cuda::Scratch<Accum<T>> partial(stream, blocks * a.cols);
  cuda::launch(stream, column_sum_kernel<T, Source>,
               dim3(static_cast<unsigned>(ceil_div(a.cols, kStrip)), static_cast<unsigned>(blocks)),
               kThreads, kRowGroups * kStrip * sizeof(Accum<T>), a, source, rows_a_block, partial);
  column_fold<Accum<T>>(stream, {{{partial, a.y, a.accumulate}}, blocks, a.cols, a.cols});
}

}  // namespace tfm::kernels
