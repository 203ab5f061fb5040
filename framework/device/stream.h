#pragma once
// A stream orders the work of a device. Kernels are overloads on the stream type; `on` visits the
// one that is there.
#include <variant>

namespace tfm::cpu {

// Work runs in the calling thread and its OpenMP team, in order.
struct Stream {
  int threads = 1;  // size of the OpenMP team
};

}  // namespace tfm::cpu

namespace tfm::cuda {
class Stream;  // device/cuda/stream.h
}

namespace tfm::device {

// Options of GPU arithmetic.
struct Numerics {
  bool tf32 = false;  // products of floats may round their factors to 10 bits of fraction
  bool deterministic =
      false;  // algorithms are not chosen by timing, so that every run computes the same bits
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
