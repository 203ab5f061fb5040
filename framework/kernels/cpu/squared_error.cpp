#include "kernels/squared_error.h"

#include "kernels/cpu/simd_half.h"

namespace tfm::kernels {

template <class T>
void squared_error(cpu::Stream&, const SquaredErrorArgs<T>& a) {
  *a.total = 0;
  for (std::int64_t r = 0; r < a.rows; ++r) *a.total += difference(a, r) * difference(a, r);
}

template <class T>
void squared_error_backward(cpu::Stream&, const SquaredErrorBackwardArgs<T>& a) {
  for (std::int64_t r = 0; r < a.rows; ++r) squared_error_row_backward(a, r);
}

#define TFM_INSTANTIATE(T)                                               \
  template void squared_error(cpu::Stream&, const SquaredErrorArgs<T>&); \
  template void squared_error_backward(cpu::Stream&, const SquaredErrorBackwardArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
