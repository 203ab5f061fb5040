#pragma once
// Summaries of sequences: one row of each, or the mean of its rows.
#include <cstdint>

#include "core/dtype.h"
#include "core/rows.h"
#include "device/stream.h"

namespace tfm::kernels {

enum class Pool : std::uint8_t {
  first,  // the row of the first position
  mean,   // of the rows that are not padding
  last    // the last row that is not padding
};

template <class T>
struct PoolArgs {
  Pool kind = Pool::first;
  Rows rows;  // those of x
  std::int64_t cols = 0;
  // (sequences, sequence_length), negative: padding; null: none
  const std::int32_t* mask = nullptr;
  const T* x = nullptr;  // (rows, cols)
  // (sequences, cols). Of sequences that ranks share, a term of the summary; of one without rows,
  // zeros.
  T* y = nullptr;
};
template <class T>
struct PoolBackwardArgs {
  Pool kind = Pool::first;
  Rows rows;
  std::int64_t cols = 0;
  const std::int32_t* mask = nullptr;
  const T* dy = nullptr;
  T* dx = nullptr;
  bool accumulate = false;
};

// The positions of a sequence whose mean is its summary.
struct PooledPositions {
  const std::int32_t* mask;
  std::int64_t begin = 0, end = 0, count = 0;

  constexpr PooledPositions(Pool kind, const std::int32_t* mask, std::int64_t length)
      : mask(kind == Pool::first ? nullptr : mask) {
    for (std::int64_t t = 0; t < (kind == Pool::first ? 1 : length); ++t) {
      if (is_padding(t)) continue;
      begin = kind == Pool::last ? t : 0;
      end = t + 1;
      count = kind == Pool::last ? 1 : count + 1;
    }
  }
  constexpr bool has(std::int64_t t) const { return t >= begin && t < end && !is_padding(t); }

 private:
  constexpr bool is_padding(std::int64_t t) const { return mask && mask[t] < 0; }
};
template <class Args>
constexpr PooledPositions pooled_positions(const Args& a, std::int64_t sequence) {
  const std::int64_t length = a.rows.sequence_length;
  return {a.kind, a.mask ? a.mask + sequence * length : nullptr, length};
}
template <class T>
void pool(cpu::Stream&, const PoolArgs<T>&);
template <class T>
void pool_backward(cpu::Stream&, const PoolBackwardArgs<T>&);
template <class T>
void pool(cuda::Stream&, const PoolArgs<T>&);
template <class T>
void pool_backward(cuda::Stream&, const PoolBackwardArgs<T>&);

}  // namespace tfm::kernels
