#pragma once
// Normal random numbers of initial weights.
#include <cstdint>

#include "core/philox.h"

namespace tfm::kernels {

// Elements [first, first + n) of a normal stream times `deviation`, by Box and Muller ("A note on
// the generation of random normal deviates", 1958) in double: one block of four words gives
// elements 4k to 4k + 3. In the calling thread, on the host for every device, and without fused
// multiply-adds or a mathematical library, so that the bits are the same on all processors.
template <class T>
void normals(const RandomKey& key, std::uint64_t first, std::int64_t n, float deviation, T* out);

}  // namespace tfm::kernels
