#pragma once
// Normal random numbers for initial weights.
#include <cstdint>

#include "core/philox.h"

namespace tfm::kernels {

// Writes elements [first, first + n) of a stream of normal numbers times `deviation`, by the method
// of Box and Muller ("A note on the generation of random normal deviates", 1958) in double. Random
// block k gives elements 4k to 4k + 3. Runs in the calling thread on the host, for every device,
// without fused multiply-adds or a math library, so that the bits are the same on all processors.
template <class T>
void normals(const RandomKey& key, std::uint64_t first, std::int64_t n, float deviation, T* out);

}  // namespace tfm::kernels
