#pragma once
// y = x f(z): what a sublayer puts out, times a function of its input, as gated attention (Qiu et
// al. 2025) and the gated delta rule (Yang et al. 2025) have.
#include <cstdint>

#include "core/dtype.h"
#include "device/stream.h"

namespace tfm::kernels {

enum class Gate : std::uint8_t { sigmoid, silu };

template <class T>
struct GateArgs {
  std::int64_t n = 0;
  Gate kind = Gate::silu;
  const T *x = nullptr, *z = nullptr;
  T *y = nullptr;
};
template <class T>
struct GateBackwardArgs {
  std::int64_t n = 0;
  Gate kind = Gate::silu;
  const T *x = nullptr, *z = nullptr, *dy = nullptr;
  T *dx = nullptr, *dz = nullptr;       // may be null
  bool adds_x = false, adds_z = false;  // whether they are added to
};

template <class T>
void gate(cpu::Stream &, const GateArgs<T> &);
template <class T>
void gate_backward(cpu::Stream &, const GateBackwardArgs<T> &);
template <class T>
void gate(cuda::Stream &, const GateArgs<T> &);
template <class T>
void gate_backward(cuda::Stream &, const GateBackwardArgs<T> &);

}  // namespace tfm::kernels
