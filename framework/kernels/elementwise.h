#pragma once
// Elementwise operations, copies and sums.
#include <cstdint>

#include "core/dtype.h"
#include "device/stream.h"

namespace tfm::kernels {

template <class T>
struct CopyArgs {
  std::int64_t n = 0;
  const T* x = nullptr;
  T* y = nullptr;
  bool accumulate = false;
  Accum<T> scale = 1;
};
// Row r of x starts at r * x_stride, row r of y at r * y_stride.
template <class T>
struct CopyRowsArgs {
  std::int64_t rows = 0, cols = 0;
  const T* x = nullptr;
  std::int64_t x_stride = 0;
  T* y = nullptr;
  std::int64_t y_stride = 0;
  bool accumulate = false;
};
template <class T>
struct FillArgs {
  std::int64_t n = 0;
  T value{};
  T* y = nullptr;
};
template <class T>
struct ColumnSumArgs {                          // y (cols) = sum over rows of x (rows, cols)
  std::int64_t rows = 0, cols = 0, stride = 0;  // row r starts at r * stride
  const T* x = nullptr;
  Accum<T>* y = nullptr;
  bool accumulate = false;
};
template <class From, class To>
struct ConvertRowsArgs {  // strided as in CopyRowsArgs
  std::int64_t rows = 0, cols = 0;
  const From* x = nullptr;
  std::int64_t x_stride = 0;
  To* y = nullptr;
  std::int64_t y_stride = 0;
  bool accumulate = false;
};
template <class T>
struct SoftcapArgs {  // y = cap * tanh(x / cap); row r starts at r * stride; y may be x
  std::int64_t rows = 0, cols = 0, stride = 0;
  Accum<T> cap = 1;
  const T* x = nullptr;
  T* y = nullptr;
};
template <class T>
struct SoftcapBackwardArgs {  // dx (+)= dy (1 - (y / cap)^2)
  std::int64_t n = 0;
  Accum<T> cap = 1;
  const T* y = nullptr;
  const T* dy = nullptr;
  T* dx = nullptr;
  bool accumulate = false;
};
template <class T>
struct AddBiasArgs {
  std::int64_t rows = 0, cols = 0;
  const T* bias = nullptr;
  T* x = nullptr;
};

template <class T>
void copy(cpu::Stream&, const CopyArgs<T>&);  // y (+)= scale * x
template <class T>
void copy_rows(cpu::Stream&, const CopyRowsArgs<T>&);
template <class From, class To>
void convert_rows(cpu::Stream&, const ConvertRowsArgs<From, To>&);  // T to Accum<T> and back
template <class T>
void fill(cpu::Stream&, const FillArgs<T>&);
template <class T>
void column_sum(cpu::Stream&, const ColumnSumArgs<T>&);
template <class T>
void add_bias(cpu::Stream&, const AddBiasArgs<T>&);
template <class T>
void softcap(cpu::Stream&, const SoftcapArgs<T>&);
template <class T>
void softcap_backward(cpu::Stream&, const SoftcapBackwardArgs<T>&);
template <class T>
void copy(cuda::Stream&, const CopyArgs<T>&);
template <class T>
void copy_rows(cuda::Stream&, const CopyRowsArgs<T>&);
template <class From, class To>
void convert_rows(cuda::Stream&, const ConvertRowsArgs<From, To>&);
template <class T>
void fill(cuda::Stream&, const FillArgs<T>&);
template <class T>
void column_sum(cuda::Stream&, const ColumnSumArgs<T>&);
template <class T>
void add_bias(cuda::Stream&, const AddBiasArgs<T>&);
template <class T>
void softcap(cuda::Stream&, const SoftcapArgs<T>&);
template <class T>
void softcap_backward(cuda::Stream&, const SoftcapBackwardArgs<T>&);

}  // namespace tfm::kernels
