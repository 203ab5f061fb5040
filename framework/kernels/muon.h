#pragma once
// Kernels of Muon: the momentum, and the normalization before its iterations. Its products use
// gemm.h.
#include "kernels/part_update.h"

namespace tfm::kernels {

// m += (1 - momentum) * (g - m); grad = m or, with Nesterov's momentum, g + momentum * (m - g),
// where g is the clipped gradient. Changes nothing if outcome->applied is 0.
template <class T, class P>
struct MomentumArgs {
  std::span<const PartElements<T, P>> ranges;
  double momentum = 0;
  bool nesterov = false;
  const StepOutcome* outcome = nullptr;
};
// x /= max(Euclidean norm of x, least).
template <class T>
struct NormalizeArgs {
  std::int64_t n = 0;
  double least = 0;
  T* x = nullptr;
};

template <class T, class P>
void momentum(cpu::Stream&, const MomentumArgs<T, P>&);
template <class T>
void normalize(cpu::Stream&, const NormalizeArgs<T>&);
template <class T, class P>
void momentum(cuda::Stream&, const MomentumArgs<T, P>&);
template <class T>
void normalize(cuda::Stream&, const NormalizeArgs<T>&);

}  // namespace tfm::kernels
