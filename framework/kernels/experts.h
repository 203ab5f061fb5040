#pragma once
// Kernels of mixture-of-experts layers (Shazeer et al. 2017; Fedus et al. 2022). Sizes: N tokens, C
// width of the model, E experts, K experts of a token. Slot n K + k is choice k of token n. A
// routed row is a slot in the order of its expert, and in that of slots within an expert; rows
// behind the last slot that has an expert (choice >= 0) are zeros.
#include <cstdint>

#include "core/dtype.h"
#include "core/rows.h"
#include "device/stream.h"

namespace tfm::kernels {

struct RouterOptions {
  std::int64_t experts = 0, top_k = 1;  // E, K
  bool sigmoid = false;                 // scores of experts are independent; else a softmax
  bool normalize = true;                // weights of a token sum up to `scale`
  double scale = 1;
  Rows rows;  // of the tokens
};

// A token takes the K experts of the highest score, of equal ones that of the lower index.
template <class T>
struct RouteArgs {
  RouterOptions options;
  const std::int32_t* mask = nullptr;  // (B T) of whole sequences, negative: padding; null: none
  const T* logits = nullptr;           // (N, E)
  T* scores = nullptr;                 // (N, E)
  T* lse = nullptr;                    // (N), log of the sum of exp(logits)
  T* weights = nullptr;                // (N, K)
  std::int32_t* choice = nullptr;      // (N, K)
  // (B, E + 1): for each sequence the sum over this rank's tokens of the probability of each expert
  // (its score; of sigmoids, divided by their sum) and of lse^2, divided by the number of tokens of
  // the whole sequence. Padding does not count here and in `counts`.
  T* statistics = nullptr;
  T* counts = nullptr;  // (B, E), choices of each expert
};
template <class T>
struct RouteBackwardArgs {
  RouterOptions options;
  const std::int32_t* mask = nullptr;
  const T *logits = nullptr, *scores = nullptr, *lse = nullptr, *weights = nullptr;
  const std::int32_t* choice = nullptr;
  const T* dweights = nullptr;     // (N, K); may be null
  const T* dstatistics = nullptr;  // (B, E + 1); may be null
  const T* counts = nullptr;       // (B, E), of all ranks that share the sequences
  T* dlogits = nullptr;            // (N, E)
};

// Sorts slots by expert.
struct SortSlotsArgs {
  std::int64_t slots = 0, experts = 0;
  const std::int32_t* choice = nullptr;  // (slots), negative: none
  std::int32_t* place = nullptr;         // (slots), row of each slot, or -1
  std::int32_t* slot = nullptr;          // (slots), slot of each row, or -1
  std::int32_t* offsets = nullptr;       // (E + 1), first row of each expert
};

// Row r of y = x[slot[r] / K].
template <class T>
struct GatherSlotsArgs {
  std::int64_t rows = 0, cols = 0, top_k = 1;
  const std::int32_t* slot = nullptr;  // (rows)
  const T* x = nullptr;                // (rows / K, cols)
  T* y = nullptr;                      // (rows, cols)
};
// y[n] (+)= sum over k of weights[n, k] x[place[n, k]].
template <class T>
struct CombineSlotsArgs {
  std::int64_t tokens = 0, cols = 0, top_k = 1;
  const std::int32_t* place = nullptr;  // (tokens, K)
  const Accum<T>* weights = nullptr;    // (tokens, K); null: ones
  const T* x = nullptr;                 // (tokens K, cols)
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

enum class RouterTerm : std::uint8_t {
  // E sum over experts of (share of the choices) (mean probability), which is 1 where all are equal
  // (Fedus et al. 2022, equation 4; for each sequence: DeepSeek-AI 2024, equation 17)
  balance,
  z  // the mean of lse^2 (Zoph et al. 2022, equation 5)
};
// A term of the loss that is the sum over sequences.
template <class T>
struct RouterTermArgs {
  RouterTerm term{};
  std::int64_t sequences = 0, experts = 0;
  const T* statistics = nullptr;   // (B, E + 1), see RouteArgs
  const T* counts = nullptr;       // (B, E), of all ranks that share the sequences
  const double* before = nullptr;  // a sum to which this one is added, or null
  double* sum = nullptr;           // (1)
};
template <class T>
struct RouterTermBackwardArgs {
  RouterTerm term{};
  std::int64_t sequences = 0, experts = 0;
  const T* counts = nullptr;
  const double* scale = nullptr;  // of the gradient, in device memory; null: 1
  T* dstatistics = nullptr;       // (B, E + 1)
  bool accumulate = false;
};

// Sums over the sequences of a layer, added to those of the layers before: (2 E + 1), the
// probability of each expert, its choices, and the tokens that count. Of choices and tokens those
// of one of the ranks that share sequences, which `counts` have in common.
template <class T>
struct SumRoutingArgs {
  std::int64_t sequences = 0, experts = 0, top_k = 1;
  const T *statistics = nullptr, *counts = nullptr;
  bool counts_choices = true;
  const T* before = nullptr;  // (2 E + 1) or null
  T* sums = nullptr;
};
template <class T>
struct SumRoutingBackwardArgs {
  std::int64_t sequences = 0, experts = 0, top_k = 1;
  const T *counts = nullptr, *dsums = nullptr;
  T* dstatistics = nullptr;
  bool accumulate = false;
};
// E sum over experts of (choices of a token) (mean probability), over all tokens and layers that
// `totals` are sums of; of these this rank has `sums`, whose term it is.
template <class T>
struct BatchBalanceArgs {
  std::int64_t experts = 0;
  const T *sums = nullptr, *totals = nullptr;  // (2 E + 1)
  double* loss = nullptr;                      // (1)
};
template <class T>
struct BatchBalanceBackwardArgs {
  std::int64_t experts = 0;
  const T* totals = nullptr;
  const double* scale = nullptr;  // of the gradient, in device memory; null: 1
  T* dsums = nullptr;
};

#define TFM_EXPERT_KERNELS(Stream)                                      \
  void sort_slots(Stream&, const SortSlotsArgs&);                       \
  template <class T>                                                    \
  void route(Stream&, const RouteArgs<T>&);                             \
  template <class T>                                                    \
  void route_backward(Stream&, const RouteBackwardArgs<T>&);            \
  template <class T>                                                    \
  void gather_slots(Stream&, const GatherSlotsArgs<T>&);                \
  template <class T>                                                    \
  void combine_slots(Stream&, const CombineSlotsArgs<T>&);              \
  template <class T>                                                    \
  void weigh_slots(Stream&, const WeighSlotsArgs<T>&);                  \
  template <class T>                                                    \
  void grouped_gemm(Stream&, const GroupedGemmArgs<T>&);                \
  template <class T>                                                    \
  void grouped_gradients(Stream&, const GroupedGradientsArgs<T>&);      \
  template <class T>                                                    \
  void gated_add(Stream&, const GatedAddArgs<T>&);                      \
  template <class T>                                                    \
  void gated_add_backward(Stream&, const GatedAddBackwardArgs<T>&);     \
  template <class T>                                                    \
  void router_term(Stream&, const RouterTermArgs<T>&);                  \
  template <class T>                                                    \
  void router_term_backward(Stream&, const RouterTermBackwardArgs<T>&); \
  template <class T>                                                    \
  void sum_routing(Stream&, const SumRoutingArgs<T>&);                  \
  template <class T>                                                    \
  void sum_routing_backward(Stream&, const SumRoutingBackwardArgs<T>&); \
  template <class T>                                                    \
  void batch_balance(Stream&, const BatchBalanceArgs<T>&);              \
  template <class T>                                                    \
  void batch_balance_backward(Stream&, const BatchBalanceBackwardArgs<T>&);
TFM_EXPERT_KERNELS(cpu::Stream)
TFM_EXPERT_KERNELS(cuda::Stream)
#undef TFM_EXPERT_KERNELS

}  // namespace tfm::kernels
