#pragma once
// Token embeddings, position tables and rotary positions.
#include <cstdint>

#include "core/dtype.h"
#include "device/stream.h"

namespace tfm::kernels {

template <class T>
struct EmbeddingArgs {
  std::int64_t rows = 0, cols = 0;
  const std::int32_t* ids = nullptr;  // (rows)
  const T* table = nullptr;  // (vocab_end - vocab_begin, cols): this rank's part of the vocabulary
  std::int64_t vocab_begin = 0, vocab_end = 0;  // ids outside this range give zero rows
  Accum<T> scale = 1;
  T* y = nullptr;  // (rows, cols)
};
template <class T>
struct EmbeddingBackwardArgs {
  std::int64_t rows = 0, cols = 0;
  const std::int32_t* ids = nullptr;
  const T* dy = nullptr;
  // table_rows >= vocab_end - vocab_begin; further rows are padding.
  std::int64_t vocab_begin = 0, vocab_end = 0, table_rows = 0;
  Accum<T> scale = 1;
  std::int64_t padding_idx = -1;  // id whose rows pass no gradient
  Accum<T>* dtable = nullptr;     // (table_rows, cols)
  bool accumulate = false;        // false: assigned, with zeros in rows that no id names
};

// y = x + table[first + (row_offset + r) % length]
template <class T>
struct PositionArgs {
  std::int64_t rows = 0, cols = 0, row_offset = 0, length = 0, first = 0;
  const T* x = nullptr;
  const T* table = nullptr;  // (>= first + length, cols)
  T* y = nullptr;
};
template <class T>
struct PositionBackwardArgs {
  std::int64_t rows = 0, cols = 0, row_offset = 0, length = 0, first = 0, table_rows = 0;
  const T* dy = nullptr;
  Accum<T>* dtable = nullptr;
  bool accumulate = false;
};

// Rotary embedding in rotate-half form (Su et al. 2021): in the first `rotated_heads` heads of each
// row, pair (i, i + R/2) of the first R columns is rotated by t * frequency[i], where t is the
// position of the row, and multiplied by `factor`. The remaining columns are copied.
template <class T>
struct RotaryArgs {
  std::int64_t rows = 0, cols = 0, rotated_heads = 0, head_size = 0;
  std::int64_t turning = 0;  // R
  // Position of row r: (row_offset + r) % length + position_offset.
  std::int64_t row_offset = 0, length = 0, position_offset = 0;
  const double* frequency = nullptr;  // (R / 2)
  double factor = 1;
  const T* x = nullptr;
  T* y = nullptr;           // may be x
  bool inverse = false;     // inverse rotation, for backward
  bool accumulate = false;  // adds to y
};

template <class T>
void embedding(cpu::Stream&, const EmbeddingArgs<T>&);
template <class T>
void embedding_backward(cpu::Stream&, const EmbeddingBackwardArgs<T>&);
template <class T>
void add_position(cpu::Stream&, const PositionArgs<T>&);
template <class T>
void add_position_backward(cpu::Stream&, const PositionBackwardArgs<T>&);
template <class T>
void rotary(cpu::Stream&, const RotaryArgs<T>&);
template <class T>
void embedding(cuda::Stream&, const EmbeddingArgs<T>&);
template <class T>
void embedding_backward(cuda::Stream&, const EmbeddingBackwardArgs<T>&);
template <class T>
void add_position(cuda::Stream&, const PositionArgs<T>&);
template <class T>
void add_position_backward(cuda::Stream&, const PositionBackwardArgs<T>&);
template <class T>
void rotary(cuda::Stream&, const RotaryArgs<T>&);

}  // namespace tfm::kernels
