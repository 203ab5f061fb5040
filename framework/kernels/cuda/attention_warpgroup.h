#pragma once
// Test of warpgroup products (kernels/cuda/tensor_cores.h), which precedes their use.
#include <cstdint>

#include "device/cuda/stream.h"

namespace tfm::kernels::gpu {

// Whether attention can use them on the stream's device. False during graph capture if no call came
// before.
bool multiplies_by_warpgroups(cuda::Stream&);

// The same without the switch of the emulator. Warns at the first call if they are wrong.
bool products_are_right(cuda::Stream&);

inline constexpr int kWarpgroup = 4;  // warps
enum class ProductsOfWarp : std::int32_t {
  absent,  // the code for this device has none
  wrong,
  right
};
// Runs the test; answers (kWarpgroup) is in device memory.
void try_products(cuda::Stream&, ProductsOfWarp* answers);

}  // namespace tfm::kernels::gpu
