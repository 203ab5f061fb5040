#pragma once
// Squared differences from numbers, the bits of floats, of which NaN is ignored.
#include "core/batch.h"
#include "core/dtype.h"
#include "device/stream.h"

namespace tfm::kernels {

template <class T>
struct SquaredErrorArgs {
  std::int64_t rows = 0;
  const T* x = nullptr;                   // (rows)
  const std::int32_t* numbers = nullptr;  // (rows)
  double* total = nullptr;                // (1): the sum, in a fixed order
};
template <class T>
struct SquaredErrorBackwardArgs {
  std::int64_t rows = 0;
  const T* x = nullptr;
  const std::int32_t* numbers = nullptr;
  const double* scale = nullptr;  // (1): multiplies the gradient; null: 1
  bool is_zero = false;           // whatever x is
  T* dx = nullptr;                // (rows)
  bool accumulate = false;
};

// x - number of row r; 0 if ignored.
template <class Args>
constexpr double difference(const Args& a, std::int64_t r) {
  if (!info_of(Field::numbers).counts(a.numbers[r])) return 0;
  return static_cast<double>(a.x[r]) - std::bit_cast<float>(a.numbers[r]);
}
template <class T>
constexpr void squared_error_row_backward(const SquaredErrorBackwardArgs<T>& a, std::int64_t r) {
  const double own = a.is_zero ? 0 : 2 * difference(a, r) * (a.scale ? *a.scale : 1);
  a.dx[r] = T(static_cast<Accum<T>>(a.accumulate ? static_cast<double>(a.dx[r]) + own : own));
}

template <class T>
void squared_error(cpu::Stream&, const SquaredErrorArgs<T>&);
template <class T>
void squared_error_backward(cpu::Stream&, const SquaredErrorBackwardArgs<T>&);
template <class T>
void squared_error(cuda::Stream&, const SquaredErrorArgs<T>&);
template <class T>
void squared_error_backward(cuda::Stream&, const SquaredErrorBackwardArgs<T>&);

}  // namespace tfm::kernels
