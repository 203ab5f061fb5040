#pragma once
// What tests may set and see of the stand-ins of the CUDA runtime and cuBLASLt.
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tfm::executor {

struct Runtime {
  int devices = 1;                                  // 0: there is no driver
  std::size_t free_bytes = std::size_t{1} << 40;    // an allocation of more fails
  bool capturing = false;
  float clock = 0;                                  // milliseconds
  std::vector<float> cost = {3, 1, 2};              // milliseconds a product takes by algorithm; 0: it is refused
  std::vector<std::uint64_t> algorithms;            // used by the products so far
};
extern Runtime runtime;

}  // namespace tfm::executor
