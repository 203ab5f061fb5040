#include "kernels/pool.h"

#include <algorithm>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_half.h"

namespace tfm::kernels {

template <class T>
void pool(cpu::Stream& stream, const PoolArgs<T>& a) {
  parallel(stream, a.rows.sequences, a.rows.tokens() * a.cols, [&](std::int64_t b) {
    const PooledPositions positions = pooled_positions(a, b);
    const auto count = static_cast<Accum<T>>(std::max<std::int64_t>(1, positions.count));
    each<T>(a.cols, [&](std::int64_t i, auto m) TFM_INLINE {
      Vec<T> sum{};
      each_row(a.rows, b, positions.begin, positions.end,
               [&](std::int64_t row, std::int64_t t) TFM_INLINE {
                 if (positions.has(t)) sum += load(a.x + row * a.cols + i, m);
               });
      store(a.y + b * a.cols + i, sum / count, m);
    });
  });
}

template <class T>
void pool_backward(cpu::Stream& stream, const PoolBackwardArgs<T>& a) {
  parallel(stream, a.rows.sequences, a.rows.tokens() * a.cols, [&](std::int64_t b) {
    const PooledPositions positions = pooled_positions(a, b);
    const T* dy = a.dy + b * a.cols;
    const auto count = static_cast<Accum<T>>(positions.count);
    each_row(a.rows, b, 0, a.rows.sequence_length, [&](std::int64_t row, std::int64_t t) {
      T* dx = a.dx + row * a.cols;
      if (positions.has(t))
        each<T>(a.cols, [&](std::int64_t i, auto m) TFM_INLINE {
          const Vec<T> own = load(dy + i, m) / count;
          store(dx + i, a.accumulate ? load(dx + i, m) + own : own, m);
        });
      else if (!a.accumulate)
        std::fill_n(dx, a.cols, T{});
    });
  });
}

#define TFM_INSTANTIATE(T)                              \
  template void pool(cpu::Stream&, const PoolArgs<T>&); \
  template void pool_backward(cpu::Stream&, const PoolBackwardArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
