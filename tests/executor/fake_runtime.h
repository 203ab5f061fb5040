#pragma once
// What tests may set and see of the stand-ins of the CUDA runtime and cuBLASLt.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace tfm::executor {

struct Runtime {
  int devices = 1;                                  // 0: no driver that can be used
  int driver = 13000;                               // its version; 0: there is none
  std::size_t free_bytes = std::size_t{1} << 40;    // an allocation of more fails
  bool capturing = false;                           // work of streams is recorded instead of done
  std::vector<std::function<void()>> recorded;
  std::vector<void*> kept;                          // memory that recorded work uses
  long graph_launches = 0;
  float clock = 0;                                  // milliseconds
  std::vector<float> cost = {3, 1, 2};              // milliseconds a product takes by algorithm; 0: it is refused
  std::vector<std::uint64_t> algorithms;            // used by the products so far
};
extern Runtime runtime;

// Work of a stream, which owns all that it reads but memory of the device.
inline void submit(std::function<void()> work) {
  if (runtime.capturing)
    runtime.recorded.push_back(std::move(work));
  else
    work();
}

}  // namespace tfm::executor
