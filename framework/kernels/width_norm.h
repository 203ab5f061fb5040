#pragma once
// RMSNorm over rows whose columns ranks share out (Zhang & Sennrich 2019; over the whole width of
// queries or keys as in OLMo 2, Walsh et al. 2024). The sum of a row over all ranks' columns stands
// between two kernels: squares before a norm, products of x and gain dy before its gradients.
#include <cmath>
#include <cstdint>

#include "core/dtype.h"
#include "device/stream.h"

namespace tfm::kernels {

// Columns of this rank in rows of `stride` elements.
struct SharedRows {
  std::int64_t rows = 0, cols = 0, stride = 0;
};

// sums[r] = sum over columns of x^2, or of x gain dy.
template <class T>
struct RowSumsArgs {
  SharedRows of;
  const T* x = nullptr;
  const T* dy = nullptr;     // null: x^2
  const T* gain = nullptr;   // (cols), with dy
  Accum<T>* sums = nullptr;  // (rows)
};

// y = x rstd gain, rstd = 1 / sqrt(squares / width + eps).
template <class T>
struct WidthNormArgs {
  SharedRows of;
  std::int64_t width = 0;  // columns of all ranks
  double eps = 1e-5;
  const Accum<T>* squares = nullptr;  // (rows), over all ranks
  const T* x = nullptr;
  const T* gain = nullptr;  // (cols)
  T* y = nullptr;

  constexpr Accum<T> rstd(std::int64_t r) const {
    return static_cast<Accum<T>>(
        1 / std::sqrt(static_cast<double>(squares[r]) / static_cast<double>(width) + eps));
  }
};

// dx (+)= rstd (gain dy - x rstd^2 products / width), dgain (+)= sum over rows of dy x rstd.
template <class T>
struct WidthNormBackwardArgs {
  WidthNormArgs<T> forward;            // without y
  const Accum<T>* products = nullptr;  // (rows), over all ranks
  const T* dy = nullptr;
  T* dx = nullptr;  // null if not wanted
  bool accumulate_dx = false;
  Accum<T>* dgain = nullptr;  // (cols), null if not wanted
  bool accumulate_dgain = false;
};

template <class T>
void row_sums(cpu::Stream&, const RowSumsArgs<T>&);
template <class T>
void width_norm(cpu::Stream&, const WidthNormArgs<T>&);
template <class T>
void width_norm_backward(cpu::Stream&, const WidthNormBackwardArgs<T>&);
template <class T>
void row_sums(cuda::Stream&, const RowSumsArgs<T>&);
template <class T>
void width_norm(cuda::Stream&, const WidthNormArgs<T>&);
template <class T>
void width_norm_backward(cuda::Stream&, const WidthNormBackwardArgs<T>&);

}  // namespace tfm::kernels
