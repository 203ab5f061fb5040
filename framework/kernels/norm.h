#pragma once
// LayerNorm (Ba et al. 2016; biased variance) and RMSNorm (Zhang & Sennrich 2019; eps inside the
// root) over the last axis.
#include <cstdint>

#include "core/dtype.h"
#include "device/stream.h"
#include "kernels/dropout.h"

namespace tfm::kernels {

// Where rows of `cols` begin: one after the other, or `heads` side by side, `stride` from those to
// the next ones. What is of a row, as its mean, is not affected.
struct RowPlaces {
  std::int64_t heads = 0, stride = 0;  // 0: one after the other

  constexpr std::int64_t operator()(std::int64_t row, std::int64_t cols) const {
    return heads > 0 ? row / heads * stride + row % heads * cols : row * cols;
  }
};

template <class T>
struct NormArgs {
  std::int64_t rows = 0, cols = 0;
  const T* x = nullptr;      // (rows, cols)
  const T* gain = nullptr;   // (cols)
  const T* shift = nullptr;  // (cols) or null
  T* y = nullptr;            // (rows, cols)
  Accum<T>* mean = nullptr;  // (rows); not written by RMSNorm
  Accum<T>* rstd = nullptr;  // (rows)
  double eps = 1e-5;
  bool rms = false;
  RowPlaces places;  // of x and y
};

template <class T>
struct NormBackwardArgs {
  std::int64_t rows = 0, cols = 0;
  const T* dy = nullptr;
  const T* x = nullptr;
  const T* gain = nullptr;
  const Accum<T>* mean = nullptr;
  const Accum<T>* rstd = nullptr;
  T* dx = nullptr;  // null where not wanted
  bool accumulate_dx = false;
  Accum<T>* dgain = nullptr;
  bool accumulate_dgain = false;
  Accum<T>* dshift = nullptr;  // null where there is no shift
  bool accumulate_dshift = false;
  bool rms = false;
  RowPlaces places;  // of x, dy and dx
};

// A residual and the norm of it, norm.x being add.y, with the same bits as one after the other;
// `add` accumulates nothing.
template <class T>
struct AddNormArgs {
  DropoutAddArgs<T> add;
  NormArgs<T> norm;
};

template <class T>
void norm(cpu::Stream&, const NormArgs<T>&);
template <class T>
void norm_backward(cpu::Stream&, const NormBackwardArgs<T>&);
template <class T>
void add_norm(cpu::Stream&, const AddNormArgs<T>&);
template <class T>
void norm(cuda::Stream&, const NormArgs<T>&);
template <class T>
void norm_backward(cuda::Stream&, const NormBackwardArgs<T>&);
template <class T>
void add_norm(cuda::Stream&, const AddNormArgs<T>&);

}  // namespace tfm::kernels
