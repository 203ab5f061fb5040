#pragma once
// Kernels of mixture-of-experts layers (Shazeer et al. 2017; Fedus et al. 2022). Sizes: N tokens, C
// width of the model, E experts, K experts of a token. Slot n K + k is choice k of token n. A
// routed row is a slot in the order of its expert, and in that of slots within an expert; rows
// behind the last slot that has an expert (choice >= 0) are zeros.
#include <cstdint>

#include "core/dtype.h"
#include "device/stream.h"
#include "kernels/dropout.h"

namespace tfm::kernels {

// Sorts slots by expert.
struct SortSlotsArgs {
  std::int64_t slots = 0, experts = 0;
  const std::int32_t* choice = nullptr;  // (slots), negative: none
  std::int32_t* place = nullptr;         // (slots), row of each slot, or -1
  std::int32_t* slot = nullptr;          // (slots), slot of each row, or -1
  std::int32_t* offsets = nullptr;       // (E + 1), first row of each expert
};

// Slots in the order in which they are sent to the ranks that share the experts: consecutive
// experts to each, with room for `room` rows, of which those without a slot come last.
struct SendSlotsArgs {
  std::int64_t slots = 0, experts = 0, ranks = 1, room = 0;
  const std::int32_t *choice = nullptr, *place = nullptr, *slot = nullptr, *offsets = nullptr;
  std::int32_t* sent_place = nullptr;   // (slots), sent row of each slot, or -1
  std::int32_t* sent_slot = nullptr;    // (ranks room), slot of each sent row, or -1
  std::int32_t* sent_choice = nullptr;  // (ranks room), among the receiver's experts, or -1
  // (ranks room), global row of each slot by `rows`, or 0; null: not wanted.
  std::int32_t* sent_row = nullptr;
  Dropout dropout;
  DropoutPlace rows;  // whose slots are these
  // (1), the most of `before` and of the rows to a rank for which there is no room, as a multiple
  // of `even` rows.
  const double* before = nullptr;
  double* excess = nullptr;
  double even = 1;
};

// most = max(most, x), or x where `first`.
struct KeepMostArgs {
  const double* x = nullptr;
  double* most = nullptr;
  bool first = true;
};

// Row r of y = x[slot[r] / K]; `rows` may be any number.
template <class T>
struct GatherSlotsArgs {
  std::int64_t rows = 0, cols = 0, top_k = 1;
  const std::int32_t* slot = nullptr;  // (rows)
  const T* x = nullptr;                // (tokens, cols)
  T* y = nullptr;                      // (rows, cols)
};
// y[n] (+)= sum over k of weights[n, k] x[place[n, k]].
template <class T>
struct CombineSlotsArgs {
  std::int64_t tokens = 0, cols = 0, top_k = 1;
  const std::int32_t* place = nullptr;  // (tokens, K)
  const Accum<T>* weights = nullptr;    // (tokens, K); null: ones
  const T* x = nullptr;                 // (rows, cols)
  T* y = nullptr;
  bool accumulate = false;
};
// Gradients of what follows a weighted row: y = weight (h W^T + b), with dh = dy W and db = b . dy
// already known without the weight. dweights[slot] = h . dh + b . dy; then dh and dy (+)= times
// the weight.
template <class T>
struct WeighSlotsArgs {
  std::int64_t rows = 0, hidden = 0, cols = 0;
  const std::int32_t* slot = nullptr;    // (rows)
  const Accum<T>* weights = nullptr;     // by slot
  const T* h = nullptr;                  // (rows, hidden)
  T *dh = nullptr, *dy = nullptr;        // (rows, hidden), (rows, cols)
  const T* bias = nullptr;               // (E, cols) or null, with the experts of slots
  const std::int32_t* choice = nullptr;  // by slot
  Accum<T>* dweights = nullptr;          // by slot; slots without a row are not written
};

// Products of each expert's rows: C[r] = A[r] op(B_e), or dB_e (+)= A[rows of e]^T C[rows of e].
template <class T>
struct GroupedGemmArgs {
  std::int64_t rows = 0, experts = 0, n = 0, k = 0;
  bool transpose_b = false;  // B_e is (n, k), else (k, n)
  const std::int32_t* offsets = nullptr;
  const T* a = nullptr;     // (rows, k)
  const T* b = nullptr;     // (E, n, k) or (E, k, n)
  const T* bias = nullptr;  // (E, n) or null
  T* c = nullptr;           // (rows, n); zeros behind the last expert's rows
};
template <class T>
struct GroupedGradientsArgs {
  std::int64_t rows = 0, experts = 0, out = 0, in = 0;
  const std::int32_t* offsets = nullptr;
  const T* dy = nullptr;   // (rows, out)
  const T* x = nullptr;    // (rows, in)
  Accum<T>* dw = nullptr;  // (E, out, in)
  Accum<T>* db = nullptr;  // (E, out) or null
  bool accumulate_dw = false, accumulate_db = false;
};

// y = residual + sigmoid(gate) x, a gate for each row.
template <class T>
struct GatedAddArgs {
  std::int64_t rows = 0, cols = 0;
  const Accum<T>* gate = nullptr;  // (rows)
  const T *x = nullptr, *residual = nullptr;
  T* y = nullptr;
};
template <class T>
struct GatedAddBackwardArgs {
  std::int64_t rows = 0, cols = 0;
  const Accum<T>* gate = nullptr;
  const T *x = nullptr, *dy = nullptr;
  T* dx = nullptr;
  Accum<T>* dgate = nullptr;
};

#define TFM_EXPERT_KERNELS(Stream)                                 \
  void sort_slots(Stream&, const SortSlotsArgs&);                  \
  void send_slots(Stream&, const SendSlotsArgs&);                  \
  void keep_most(Stream&, const KeepMostArgs&);                    \
  template <class T>                                               \
  void gather_slots(Stream&, const GatherSlotsArgs<T>&);           \
  template <class T>                                               \
  void combine_slots(Stream&, const CombineSlotsArgs<T>&);         \
  template <class T>                                               \
  void weigh_slots(Stream&, const WeighSlotsArgs<T>&);             \
  template <class T>                                               \
  void grouped_gemm(Stream&, const GroupedGemmArgs<T>&);           \
  template <class T>                                               \
  void grouped_gradients(Stream&, const GroupedGradientsArgs<T>&); \
  template <class T>                                               \
  void gated_add(Stream&, const GatedAddArgs<T>&);                 \
  template <class T>                                               \
  void gated_add_backward(Stream&, const GatedAddBackwardArgs<T>&);
TFM_EXPERT_KERNELS(cpu::Stream)
TFM_EXPERT_KERNELS(cuda::Stream)
#undef TFM_EXPERT_KERNELS

}  // namespace tfm::kernels
