#pragma once
// Plain vector operations.
#include <cstdint>

#include "device/stream.h"

namespace tfm::kernels {

template <class T> struct CopyArgs { std::int64_t n = 0; const T* x = nullptr; T* y = nullptr; bool accumulate = false; T scale = 1; };
template <class T> struct FillArgs { std::int64_t n = 0; T value = 0; T* y = nullptr; };
template <class T> struct ColumnSumArgs {  // y (cols) = sum over rows of x (rows, cols)
  std::int64_t rows = 0, cols = 0;
  const T* x = nullptr;
  T* y = nullptr;
  bool accumulate = false;
};
template <class T> struct AddBiasArgs { std::int64_t rows = 0, cols = 0; const T* bias = nullptr; T* x = nullptr; };

template <class T> void copy(cpu::Stream&, const CopyArgs<T>&);  // y (+)= scale * x
template <class T> void fill(cpu::Stream&, const FillArgs<T>&);
template <class T> void column_sum(cpu::Stream&, const ColumnSumArgs<T>&);
template <class T> void add_bias(cpu::Stream&, const AddBiasArgs<T>&);

}  // namespace tfm::kernels
