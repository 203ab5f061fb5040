#pragma once
// Products of warpgroups (kernels/cuda/tensor_cores.h) are tried before they are used.
#include <cstdint>

#include "device/cuda/stream.h"

namespace tfm::kernels::gpu {

// Whether attention can use them on the stream's device; not while a graph is captured that comes
// before the first call.
bool multiplies_by_warpgroups(cuda::Stream&);

// The same where nothing switches them off. Warns at the first call if they are wrong.
bool products_are_right(cuda::Stream&);

inline constexpr int kWarpgroup = 4;  // warps
enum class ProductsOfWarp : std::int32_t {
  absent,  // from the code for this device
  wrong,
  right
};
// On the device: answers (kWarpgroup).
void try_products(cuda::Stream&, ProductsOfWarp* answers);

}  // namespace tfm::kernels::gpu
