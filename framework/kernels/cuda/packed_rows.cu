// Rows with a label; see packs.h.
#include "kernels/cuda/packs.h"
#include "kernels/packed_rows.h"

namespace tfm::kernels {
namespace {

constexpr int kPackThreads = 1024;

// One block: a thread takes rows that follow each other, behind those of the threads before.
__global__ void __launch_bounds__(kPackThreads) pack_kernel(PackRowsArgs a) {
  int* of_warp = cuda::shared_memory<int>();  // labels of each warp
  const int warp = static_cast<int>(threadIdx.x) / kWarp,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t share = (a.rows + kPackThreads - 1) / kPackThreads,
                     begin = threadIdx.x * share,
                     end = begin + share < a.rows ? begin + share : a.rows;
  int own = 0;
  for (std::int64_t r = begin; r < end; ++r) own += a.labels[r] >= 0;
  int up_to = own;  // in this warp
  for (int by = 1; by < kWarp; by *= 2) {
    const int before = cuda::shuffle_up(up_to, by);
    if (lane >= by) up_to += before;
  }
  if (lane == kWarp - 1) of_warp[warp] = up_to;
  cuda::block_barrier();
  std::int64_t at = up_to - own, all = 0;
  for (int w = 0; w < kPackThreads / kWarp; ++w) {
    if (w < warp) at += of_warp[w];
    all += of_warp[w];
  }
  for (std::int64_t r = begin; r < end; ++r)
    if (a.labels[r] >= 0 && at < a.packed) {
      a.places[at] = static_cast<std::int32_t>(r);
      a.packed_labels[at++] = a.labels[r];
    }
  for (std::int64_t i = all + threadIdx.x; i < a.packed; i += kPackThreads)
    a.places[i] = a.packed_labels[i] = -1;
}

template <class T>
struct Scatter {
  ScatterRowsArgs<T> a;
  __device__ void operator()(std::int64_t row, std::int64_t c, Part part) const {
    const std::int64_t place = a.places[row];
    if (place < 0) return;
    const auto x = load_pack(a.x + row * a.cols + c, part);
    Accum<T> y[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) y[i] = x[i];
    store_pack(a.y + place * a.cols + c, part, y, a.accumulate);
  }
};

}  // namespace

void pack_rows(cuda::Stream& stream, const PackRowsArgs& a) {
  cuda::launch(stream, pack_kernel, 1, kPackThreads, kPackThreads / kWarp * sizeof(int), a);
}
template <class T>
void scatter_rows(cuda::Stream& stream, const ScatterRowsArgs<T>& a) {
  over_rows(stream, a.rows, a.cols, Scatter<T>{a});
}

#define TFM_INSTANTIATE(T) template void scatter_rows(cuda::Stream&, const ScatterRowsArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
