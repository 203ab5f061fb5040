#pragma once
// A stream orders the work of a device. Kernels are overloaded on the stream type; on() dispatches
// to the type at hand.
#include <variant>

namespace tfm::cpu {

// Work runs synchronously in the calling thread and its OpenMP team.
struct Stream {
  int threads = 1;  // size of the OpenMP team
};

}  // namespace tfm::cpu

namespace tfm::cuda {
class Stream;  // device/cuda/stream.h
}

namespace tfm::device {

// Options of arithmetic on GPUs.
struct Numerics {
  bool tf32 = false;  // float matrix products may round their factors to TF32 (10 fraction bits)
  // Algorithms are not chosen by timing, so that every run computes the same bits.
  bool deterministic = false;
};

#ifdef TFM_CUDA
using AnyStream = std::variant<cpu::Stream*, cuda::Stream*>;
#else
using AnyStream = std::variant<cpu::Stream*>;
#endif

template <class F>
decltype(auto) on(AnyStream stream, F&& f) {
  return std::visit([&](auto* s) -> decltype(auto) { return f(*s); }, stream);
}

}  // namespace tfm::device
