#pragma once
// Inverted dropout with counter-based masks: element i of the global tensor is kept if and only if
// word(i) >= p * 2^32.
#include <cstdint>

#include "core/philox.h"
#include "core/step_numbers.h"
#include "device/stream.h"

namespace tfm::kernels {

struct Dropout {
  float p = 0;    // probability of zero; 0: no dropout
  RandomKey key;  // purpose dropout, random stream of the op's name, optimizer step
  // In device memory; if given, replaces the step and gives the first sequence, from which element
  // indices are counted.
  const StepNumbers* now = nullptr;
  // Instead of zeros: factors in [1 - jitter, 1 + jitter).
  float jitter = 0;

  constexpr std::uint32_t threshold() const {
    return static_cast<std::uint32_t>(static_cast<double>(p) * 4294967296.0);
  }
  constexpr float scale() const { return 1.0f / (1.0f - p); }
  // The factor of an element with this random word.
  constexpr float factor(std::uint32_t word) const {
    if (jitter > 0)
      return 1.0f - jitter + 2.0f * jitter * (static_cast<float>(word >> 8) * 0x1p-24f);
    return word >= threshold() ? scale() : 0.0f;
  }
  // Callable only where kernels run, since they read *now:
  constexpr RandomKey current() const {
    return now ? RandomKey{key.seed, key.purpose, key.stream, now->step} : key;
  }
  constexpr std::int64_t first_sequence() const { return now ? now->first_sequence : 0; }
};

// Part of a global (rows, cols_total) tensor. The element index of local (r, c) is
// row(r) * round_up(cols_total, 4) + col_offset + c.
struct DropoutPlace {
  std::int64_t row_offset = 0, col_offset = 0, cols_total = 0, sequence_length = 0;
  // Context parallelism (core/rows.h): rows of a chunk in one sequence and in all sequences, and
  // the positions at which the two chunks start. 0: whole sequences.
  std::int64_t chunk_length = 0, chunk_rows = 0;
  std::int64_t start[2] = {};
  // Routed rows (kernels/experts.h): the slot of each, among `top_k` of a row. Null: rows as they
  // are. `global`: by slot the global row, as row() gives it on the rank that has the token; null:
  // slots of this rank's rows.
  const std::int32_t *slot = nullptr, *global = nullptr;
  std::int64_t top_k = 1;

  // Global row of local row r.
  constexpr std::int64_t row(const Dropout& d, std::int64_t r) const {
    if (slot && slot[r] < 0) return 0;
    if (global) return global[slot[r]];
    if (slot) return whole_row(d, slot[r] / top_k) * top_k + slot[r] % top_k;
    return whole_row(d, r);
  }

 private:
  constexpr std::int64_t whole_row(const Dropout& d, std::int64_t r) const {
    r += row_offset;
    if (chunk_length == 0) return d.first_sequence() * sequence_length + r;
    const int chunk = r >= chunk_rows;
    r -= chunk * chunk_rows;
    return (d.first_sequence() + r / chunk_length) * sequence_length + start[chunk] +
           r % chunk_length;
  }
};

template <class T>
struct DropoutAddArgs {
  std::int64_t rows = 0, cols = 0;
  const T* x = nullptr;         // (rows, cols)
  const T* residual = nullptr;  // (rows, cols) or null
  T* y = nullptr;               // residual + dropout(x); may be x or residual
  bool accumulate = false;      // y += instead
  Dropout dropout;
  DropoutPlace place;
};

template <class T>
void dropout_add(cpu::Stream&, const DropoutAddArgs<T>&);
template <class T>
void dropout_add(cuda::Stream&, const DropoutAddArgs<T>&);

}  // namespace tfm::kernels
