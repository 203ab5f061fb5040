#include "kernels/cpu/chunk_team.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_half.h"
#include "kernels/gated_delta_backward.inl"
#include "kernels/gated_delta_gates.inl"

namespace tfm::kernels {

std::int64_t delta_elements(const DeltaSizes& sizes, bool backward) {
  return DeltaMemory<double>(sizes, backward, nullptr).elements;
}

namespace {

// Calls f(sequence, key head, memory).
template <class T, class F>
void each_key_head(cpu::Stream& stream, const DeltaInputs<T>& a, bool backward, F&& f) {
  const std::int64_t elements = delta_elements(a.sizes, backward);
  parallel_tasks(stream, a.sequences * a.sizes.key_heads, [&](std::int64_t i) {
    f(i / a.sizes.key_heads, i % a.sizes.key_heads,
      scratch<Accum<T>, struct DeltaScratch>(elements));
  });
}

}  // namespace

template <class T>
void gated_delta(cpu::Stream& stream, const GatedDeltaArgs<T>& a) {
  each_key_head<T>(stream, a, false, [&](std::int64_t b, std::int64_t h, Accum<T>* memory) {
    delta_forward(ThreadAlone<T>{}, a, b, h, memory);
  });
}

template <class T>
void gated_delta_backward(cpu::Stream& stream, const GatedDeltaBackwardArgs<T>& a) {
  each_key_head<T>(stream, a, true, [&](std::int64_t b, std::int64_t h, Accum<T>* memory) {
    delta_backward(ThreadAlone<T>{}, a, b, h, memory);
  });
}

template <class T>
void delta_gates(cpu::Stream& stream, const DeltaGatesArgs<T>& a) {
  parallel(stream, a.rows, a.rows * a.heads * 32, [&](std::int64_t r) {
    for (std::int64_t h = 0; h < a.heads; ++h) put_gates(a, r, h);
  });
}

template <class T>
void delta_gates_backward(cpu::Stream& stream, const DeltaGatesBackwardArgs<T>& a) {
  parallel(stream, a.rows, a.rows * a.heads * 32, [&](std::int64_t r) {
    for (std::int64_t h = 0; h < a.heads; ++h) put_gate_gradients(a, r, h);
  });
}

#define TFM_INSTANTIATE(T)                                                            \
  template void gated_delta(cpu::Stream&, const GatedDeltaArgs<T>&);                  \
  template void gated_delta_backward(cpu::Stream&, const GatedDeltaBackwardArgs<T>&); \
  template void delta_gates(cpu::Stream&, const DeltaGatesArgs<T>&);                  \
  template void delta_gates_backward(cpu::Stream&, const DeltaGatesBackwardArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
