#pragma once
// LayerNorm (Ba et al. 2016; biased variance) and RMSNorm (Zhang & Sennrich 2019; eps inside the
// square root) over the last axis; or as many write them, with eps outside of the root, and for
// LayerNorm the unbiased variance (Rush 2018, "The Annotated Transformer").
#include <cstdint>

#include "core/dtype.h"
#include "device/stream.h"
#include "kernels/dropout.h"

namespace tfm::kernels {

// Offsets of rows of `cols` elements: contiguous, or groups of `heads` adjacent rows with `stride`
// elements from one group to the next. Arrays with one element per row, such as means, are
// contiguous.
struct RowPlaces {
  std::int64_t heads = 0, stride = 0;  // heads 0: contiguous

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
  RowPlaces places;          // offsets of the rows of x and y
  Accum<T> gain_offset = 0;  // added to the gain
  bool eps_outside = false;
};

template <class T>
struct NormBackwardArgs {
  std::int64_t rows = 0, cols = 0;
  const T* dy = nullptr;
  const T* x = nullptr;
  const T* gain = nullptr;
  const Accum<T>* mean = nullptr;
  const Accum<T>* rstd = nullptr;
  T* dx = nullptr;  // null if not wanted
  bool accumulate_dx = false;
  Accum<T>* dgain = nullptr;
  bool accumulate_dgain = false;
  Accum<T>* dshift = nullptr;  // null if there is no shift
  bool accumulate_dshift = false;
  bool rms = false;
  RowPlaces places;          // offsets of the rows of x, dy and dx
  Accum<T> gain_offset = 0;  // as in NormArgs
  double eps = 0;            // read if outside
  bool eps_outside = false;
};

// What the variance is of the mean square, with eps outside.
template <class W>
constexpr W unbiased_share(std::int64_t cols, bool rms) {
  return rms || cols < 2 ? W{1} : static_cast<W>(cols) / static_cast<W>(cols - 1);
}
// The slope of rstd with eps outside over that with eps inside, by which the mean of h n is
// multiplied in backward. A row without variance has none.
template <class T>
constexpr Accum<T> slope_factor(const NormBackwardArgs<T>& a, Accum<T> rstd) {
  const Accum<T> share = 1 - static_cast<Accum<T>>(a.eps) * rstd;
  return share > 0 ? unbiased_share<Accum<T>>(a.cols, a.rms) / share : Accum<T>{0};
}

// A residual sum and its norm, in one kernel with the same bits as in two. norm.x must equal add.y,
// and add.accumulate must be false.
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
