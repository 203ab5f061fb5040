#pragma once
// Packing of the rows of a batch that have a label, and scattering of packed rows.
#include <algorithm>
#include <cstdint>

#include "core/dtype.h"
#include "device/stream.h"

namespace tfm::kernels {

// Number of packed rows that a GPU computes if at most `labelled` of `rows` have a label: a
// multiple of about a sixteenth of the rows, to have few sizes, or all rows if that saves less than
// an eighth.
inline std::int64_t packed_rows(std::int64_t rows, std::int64_t labelled) {
  const std::int64_t sixteenth = round_up(ceil_div(rows, 16), 16),
                     n = round_up(std::max<std::int64_t>(labelled, 1), sixteenth);
  return n * 8 > rows * 7 ? rows : n;
}

struct PackRowsArgs {
  std::int64_t rows = 0;
  const std::int32_t* labels = nullptr;  // (rows); at most `packed` of them are >= 0
  std::int64_t packed = 0;
  // (packed): indices of the rows with a label, in order, and their labels; then -1.
  std::int32_t *places = nullptr, *packed_labels = nullptr;
};
void pack_rows(cpu::Stream&, const PackRowsArgs&);
void pack_rows(cuda::Stream&, const PackRowsArgs&);

// Row places[r] of y (+)= row r of x. No place may occur twice.
template <class T>
struct ScatterRowsArgs {
  std::int64_t rows = 0, cols = 0;
  const std::int32_t* places = nullptr;  // (rows); < 0: the row is dropped
  const T* x = nullptr;                  // (rows, cols)
  T* y = nullptr;                        // (>= rows, cols)
  bool accumulate = false;
};
template <class T>
void scatter_rows(cpu::Stream&, const ScatterRowsArgs<T>&);
template <class T>
void scatter_rows(cuda::Stream&, const ScatterRowsArgs<T>&);

}  // namespace tfm::kernels
