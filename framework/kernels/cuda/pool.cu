// Threads take packs of columns and go through the rows of a sequence; see packs.h.
#include "kernels/cuda/packs.h"
#include "kernels/pool.h"

namespace tfm::kernels {
namespace {

template <class T>
struct PoolColumns {
  PoolArgs<T> a;
  __device__ void operator()(std::int64_t b, std::int64_t c, Part part) const {
    const PooledPositions positions = pooled_positions(a, b);
    Accum<T> sum[kPack] = {};
    each_row(a.rows, b, positions.begin, positions.end, [&](std::int64_t row, std::int64_t t) {
      if (!positions.has(t)) return;
      const auto x = load_pack(a.x + row * a.cols + c, part);
      TFM_UNROLL
      for (int i = 0; i < kPack; ++i) sum[i] += x[i];
    });
    const auto count = static_cast<Accum<T>>(positions.count > 0 ? positions.count : 1);
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) sum[i] /= count;
    store_pack(a.y + b * a.cols + c, part, sum);
  }
};

template <class T>
struct PoolColumnsBackward {
  PoolBackwardArgs<T> a;
  __device__ void operator()(std::int64_t b, std::int64_t c, Part part) const {
    const PooledPositions positions = pooled_positions(a, b);
    const auto dy = load_pack(a.dy + b * a.cols + c, part);
    const auto count = static_cast<Accum<T>>(positions.count);
    each_row(a.rows, b, 0, a.rows.sequence_length, [&](std::int64_t row, std::int64_t t) {
      const bool has = positions.has(t);
      if (!has && a.accumulate) return;
      Accum<T> own[kPack];
      TFM_UNROLL
      for (int i = 0; i < kPack; ++i) own[i] = has ? dy[i] / count : 0;
      store_pack(a.dx + row * a.cols + c, part, own, a.accumulate);
    });
  }
};

}  // namespace

template <class T>
void pool(cuda::Stream& stream, const PoolArgs<T>& a) {
  over_rows(stream, a.rows.sequences, a.cols, PoolColumns<T>{a});
}
template <class T>
void pool_backward(cuda::Stream& stream, const PoolBackwardArgs<T>& a) {
  over_rows(stream, a.rows.sequences, a.cols, PoolColumnsBackward<T>{a});
}

#define TFM_INSTANTIATE(T)                               \
  template void pool(cuda::Stream&, const PoolArgs<T>&); \
  template void pool_backward(cuda::Stream&, const PoolBackwardArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
