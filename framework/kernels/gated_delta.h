#pragma once
// The gated delta rule (Yang et al. 2025, "Gated Delta Networks", equation 10): a state S (Dk, Dv)
// of each head decays, and is corrected towards the value at the key:
//   S = exp(g) S,  S += k (beta (v - S^T k))^T,  y = S^T q,
// with q and k of length 1, and q times 1 / sqrt(Dk). It is computed in chunks of positions (their
// section 3.3): within a chunk by products and a triangular system, from chunk to chunk by the
// state. States and all sums have type Accum<T>.
//
// Without the correction this is the state space of Mamba-2 (Dao and Gu 2024, "Transformers are
// SSMs", section 6), where q, k, v and beta are C, B, x and the time step:
//   S = exp(g) S + k (beta v)^T,  y = S^T q + skip v,
// with q and k as they are.
#include <cstdint>

#include "core/dtype.h"
#include "device/stream.h"

namespace tfm::kernels {

inline constexpr std::int64_t kDeltaChunk = 64;  // positions

struct DeltaSizes {
  std::int64_t key_heads = 0, heads = 0;  // H / KH consecutive heads have one query and one key
  std::int64_t keys = 0, values = 0;      // Dk and Dv columns of a head
  bool corrects = true;                   // false: a state space
  constexpr std::int64_t key_width() const { return key_heads * keys; }
  constexpr std::int64_t width() const { return 2 * key_width() + heads * values; }
  constexpr std::int64_t state() const { return keys * values; }
  static constexpr std::int64_t chunks(std::int64_t length) {
    return (length + kDeltaChunk - 1) / kDeltaChunk;
  }
};
template <class T>
struct DeltaInputs {
  std::int64_t sequences = 0, length = 0;  // B, T
  DeltaSizes sizes;
  const T* qkv = nullptr;           // (B T, width()): queries, keys, values
  const Accum<T>* gates = nullptr;  // (B T, 2 H): beta, then g <= 0
  const T* skip = nullptr;          // (H); null: zeros
  // (B T): a state begins with zeros where they change; null: at the first position alone.
  const std::int32_t* segments = nullptr;
};
template <class T>
struct GatedDeltaArgs : DeltaInputs<T> {
  T* y = nullptr;               // (B T, H Dv)
  Accum<T>* state = nullptr;    // (B, H, Dk, Dv), read and replaced; null: zeros before
  Accum<T>* borders = nullptr;  // (B, chunks, H, Dk, Dv): the state before each chunk; or null
};
template <class T>
struct GatedDeltaBackwardArgs : DeltaInputs<T> {
  const Accum<T>* borders = nullptr;
  const T* dy = nullptr;
  T* dqkv = nullptr;
  Accum<T>* dgates = nullptr;
  Accum<T>* skip_terms = nullptr;             // (B T, H): of the gradient of `skip`
  bool adds_qkv = false, adds_gates = false;  // whether they are added to
};

// Gates from two projections of each head (their section 3.4, after Gu and Dao 2023):
// beta = sigmoid(x), g = -exp(log_rate) softplus(x' + bias); or, of a state space, from one:
// beta = softplus(x' + bias).
template <class T>
struct DeltaGatesArgs {
  std::int64_t rows = 0, heads = 0;
  bool two = true;              // projections
  const T* x = nullptr;         // (N, 2 H): for beta, then for g; or (N, H)
  const T* log_rate = nullptr;  // (H)
  const T* bias = nullptr;      // (H)
  Accum<T>* gates = nullptr;    // (N, 2 H)
};
template <class T>
struct DeltaGatesBackwardArgs : DeltaGatesArgs<T> {
  const Accum<T>* dgates = nullptr;
  T* dx = nullptr;            // may be null
  bool adds_x = false;        // whether it is added to
  Accum<T>* terms = nullptr;  // (N, 2 H): of the gradients of log_rate, then of bias
};

// Elements of type Accum<T> that are kept for each key head of a sequence, on GPUs as scratch
// memory.
std::int64_t delta_elements(const DeltaSizes& sizes, bool backward);

#define TFM_DELTA_KERNELS(Stream)                                       \
  template <class T>                                                    \
  void gated_delta(Stream&, const GatedDeltaArgs<T>&);                  \
  template <class T>                                                    \
  void gated_delta_backward(Stream&, const GatedDeltaBackwardArgs<T>&); \
  template <class T>                                                    \
  void delta_gates(Stream&, const DeltaGatesArgs<T>&);                  \
  template <class T>                                                    \
  void delta_gates_backward(Stream&, const DeltaGatesBackwardArgs<T>&);
TFM_DELTA_KERNELS(cpu::Stream)
TFM_DELTA_KERNELS(cuda::Stream)
#undef TFM_DELTA_KERNELS

}  // namespace tfm::kernels
