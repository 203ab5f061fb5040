#pragma once
// The rows of a batch that have a label, side by side, and their way back.
#include <algorithm>
#include <cstdint>

#include "core/dtype.h"
#include "device/stream.h"

namespace tfm::kernels {

// How many of `rows` a device computes where `labelled` of them, or fewer, have a label: a number
// of sixteenths, so that there are few sizes; all where that saves less than an eighth.
inline std::int64_t packed_rows(std::int64_t rows, std::int64_t labelled) {
  const std::int64_t sixteenth = round_up(ceil_div(rows, 16), 16),
                     n = round_up(std::max<std::int64_t>(labelled, 1), sixteenth);
  return n * 8 > rows * 7 ? rows : n;
}

struct PackRowsArgs {
  std::int64_t rows = 0;
  const std::int32_t* labels = nullptr;  // (rows); >= 0 in no more than `packed` of them
  std::int64_t packed = 0;
  // (packed): the rows with a label in their order, and their labels; -1 behind the last one
  std::int32_t *places = nullptr, *packed_labels = nullptr;
};
void pack_rows(cpu::Stream&, const PackRowsArgs&);
void pack_rows(cuda::Stream&, const PackRowsArgs&);

// Row places[r] of y (+)= row r of x; no place is named twice.
template <class T>
struct ScatterRowsArgs {
  std::int64_t rows = 0, cols = 0;
  const std::int32_t* places = nullptr;  // (rows); < 0: the row goes nowhere
  const T* x = nullptr;                  // (rows, cols)
  T* y = nullptr;                        // (>= rows, cols)
  bool accumulate = false;
};
template <class T>
void scatter_rows(cpu::Stream&, const ScatterRowsArgs<T>&);
template <class T>
void scatter_rows(cuda::Stream&, const ScatterRowsArgs<T>&);

}  // namespace tfm::kernels
