#include "kernels/packed_rows.h"

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_half.h"

namespace tfm::kernels {

void pack_rows(cpu::Stream&, const PackRowsArgs& a) {
  std::int64_t n = 0;
  for (std::int64_t r = 0; r < a.rows && n < a.packed; ++r)
    if (a.labels[r] >= 0)
      a.places[n] = static_cast<std::int32_t>(r), a.packed_labels[n++] = a.labels[r];
  std::fill(a.places + n, a.places + a.packed, -1);
  std::fill(a.packed_labels + n, a.packed_labels + a.packed, -1);
}

template <class T>
void scatter_rows(cpu::Stream& stream, const ScatterRowsArgs<T>& a) {
  parallel(stream, a.rows, a.rows * a.cols, [&](std::int64_t r) {
    if (a.places[r] < 0) return;
    const T* x = a.x + r * a.cols;
    T* y = a.y + a.places[r] * a.cols;
    if (!a.accumulate) {
      std::copy_n(x, a.cols, y);
      return;
    }
    each<T>(a.cols, [&](std::int64_t i, auto m)
                        TFM_INLINE { store(y + i, load(y + i, m) + load(x + i, m), m); });
  });
}

#define TFM_INSTANTIATE(T) template void scatter_rows(cpu::Stream&, const ScatterRowsArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
