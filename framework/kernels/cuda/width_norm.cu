// A warp takes the sum of a row; threads take packs of columns, see packs.h. Gradients of the gain:
// partial sums of row blocks, then column_fold.
#include "kernels/cuda/column_fold.h"
#include "kernels/cuda/reductions.h"
#include "kernels/scratch.h"
#include "kernels/width_norm.h"

namespace tfm::kernels {
namespace {

template <class T>
__global__ void __launch_bounds__(kThreads) row_sums_kernel(RowSumsArgs<T> a) {
  const std::int64_t r =
      static_cast<std::int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  const bool there = r < a.of.rows;
  const std::int64_t at = r * a.of.stride;
  Accum<T> sum = 0;
  for (std::int64_t c = threadIdx.x % kWarp; there && c < a.of.cols; c += kWarp) {
    const auto v = static_cast<Accum<T>>(a.x[at + c]);
    sum += v * (a.dy ? static_cast<Accum<T>>(a.gain[c]) * static_cast<Accum<T>>(a.dy[at + c]) : v);
  }
  sum = over_warp(sum, Sum{});
  if (there && threadIdx.x % kWarp == 0) a.sums[r] = sum;
}

template <class T>
struct NormColumns {
  WidthNormArgs<T> a;
  __device__ void operator()(std::int64_t r, std::int64_t c, Part part) const {
    const auto x = load_pack(a.x + r * a.of.stride + c, part), gain = load_pack(a.gain + c, part);
    const Accum<T> rstd = a.rstd(r);
    Accum<T> y[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) y[i] = x[i] * rstd * gain[i];
    store_pack(a.y + r * a.of.stride + c, part, y);
  }
};

template <class T>
struct NormColumnsBackward {
  WidthNormBackwardArgs<T> a;
  __device__ void operator()(std::int64_t r, std::int64_t c, Part part) const {
    const WidthNormArgs<T>& f = a.forward;
    const std::int64_t at = r * f.of.stride + c;
    const auto x = load_pack(f.x + at, part), dy = load_pack(a.dy + at, part),
               gain = load_pack(f.gain + c, part);
    const Accum<T> rstd = f.rstd(r),
                   share = rstd * rstd * a.products[r] / static_cast<Accum<T>>(f.width);
    Accum<T> dx[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) dx[i] = (dy[i] * gain[i] - x[i] * share) * rstd;
    store_pack(a.dx + at, part, dx, a.accumulate_dx);
  }
};

// A block takes columns of a block of rows; `partial` (blocks, cols).
template <class T>
__global__ void __launch_bounds__(kThreads)
    gain_kernel(WidthNormBackwardArgs<T> a, std::int64_t rows_a_block, Accum<T>* partial) {
  const WidthNormArgs<T>& f = a.forward;
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.y) * kThreads + threadIdx.x,
                     begin = blockIdx.x * rows_a_block,
                     end = begin + rows_a_block < f.of.rows ? begin + rows_a_block : f.of.rows;
  if (c >= f.of.cols) return;
  Accum<T> sum = 0;
  for (std::int64_t r = begin; r < end; ++r)
    sum += static_cast<Accum<T>>(a.dy[r * f.of.stride + c]) *
           static_cast<Accum<T>>(f.x[r * f.of.stride + c]) * f.rstd(r);
  partial[blockIdx.x * f.of.cols + c] = sum;
}

}  // namespace

template <class T>
void row_sums(cuda::Stream& stream, const RowSumsArgs<T>& a) {
  if (a.of.rows <= 0) return;
  cuda::launch(stream, row_sums_kernel<T>,
               static_cast<unsigned>(ceil_div(a.of.rows, kThreads / kWarp)), kThreads, 0, a);
}

template <class T>
void width_norm(cuda::Stream& stream, const WidthNormArgs<T>& a) {
  over_rows(stream, a.of.rows, a.of.cols, NormColumns<T>{a});
}

template <class T>
void width_norm_backward(cuda::Stream& stream, const WidthNormBackwardArgs<T>& a) {
  const SharedRows& of = a.forward.of;
  if (of.rows <= 0 || of.cols <= 0) return;
  if (a.dx) over_rows(stream, of.rows, of.cols, NormColumnsBackward<T>{a});
  if (!a.dgain) return;
  const auto [blocks, rows_a_block] = norm_backward_partition(of.rows, of.cols, sizeof(T));
  cuda::Scratch<Accum<T>> partial(stream, blocks * 2 * of.cols);
  cuda::launch(stream, gain_kernel<T>,
               dim3(static_cast<unsigned>(blocks),
                    static_cast<unsigned>(ceil_div(of.cols, std::int64_t{kThreads}))),
               kThreads, 0, a, rows_a_block, partial);
  column_fold<Accum<T>>(stream,
                        {{{partial, a.dgain, a.accumulate_dgain}, {}}, blocks, of.cols, of.cols});
}

#define TFM_INSTANTIATE(T)                                          \
  template void row_sums(cuda::Stream&, const RowSumsArgs<T>&);     \
  template void width_norm(cuda::Stream&, const WidthNormArgs<T>&); \
  template void width_norm_backward(cuda::Stream&, const WidthNormBackwardArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
