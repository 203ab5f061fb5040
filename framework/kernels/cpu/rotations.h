#pragma once
// Angles of rotary positions (Su et al. 2021).
#include <cmath>

#include "kernels/cpu/parallel.h"

namespace tfm::kernels {

// A row for each of `rows` positions: the cosines of position(row) * frequency[i], i < half, then
// the sines, all times `factor`. Scratch memory, valid until the next call.
template <class W, class F>
W* rotations(cpu::Stream& stream, std::int64_t rows, std::int64_t half, const double* frequency,
             double factor, F&& position) {
  W* const table = scratch<W, struct Rotations>(std::max<std::int64_t>(1, rows * 2 * half));
  parallel(stream, rows, rows * 2 * half * 16, [&](std::int64_t r) {
    const auto t = static_cast<double>(position(r));
    for (std::int64_t i = 0; i < half; ++i) {
      table[r * 2 * half + i] = static_cast<W>(factor * std::cos(t * frequency[i]));
      table[(r * 2 + 1) * half + i] = static_cast<W>(factor * std::sin(t * frequency[i]));
    }
  });
  return table;
}

}  // namespace tfm::kernels
