#pragma once
// Routers of mixture-of-experts layers: which experts tokens go to, and the terms of the loss that
// keep their load even. Sizes and slots are those of kernels/experts.h.
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
  // Slots of an expert in a sequence (Lepikhin et al. 2021; Fedus et al. 2022); 0: any number.
  std::int64_t capacity = 0;
  // A token chooses among the experts of `top_groups` of `groups` <= 64 equal groups of consecutive
  // experts, those whose two best experts sum up to most (DeepSeek-AI 2024, section 2.1.2).
  std::int64_t groups = 1, top_groups = 1;
};
// Columns of RouteArgs::statistics.
constexpr std::int64_t routing_statistics(std::int64_t experts) { return experts + 2; }

// A token takes the K experts of the highest score plus bias, of equal ones that of the lower
// index. The bias has no part in weights.
template <class T>
struct RouteArgs {
  RouterOptions options;
  const std::int32_t* mask = nullptr;  // (B T) of whole sequences, negative: padding; null: none
  const T* logits = nullptr;           // (N, E)
  const T* bias = nullptr;             // (E) or null: none
  T* scores = nullptr;                 // (N, E)
  T* lse = nullptr;                    // (N), log of the sum of exp(logits)
  T* entropy = nullptr;                // (N), of the probabilities of experts, in nats
  T* weights = nullptr;                // (N, K)
  std::int32_t* choice = nullptr;      // (N, K)
  // (B, E + 2): for each sequence the sum over this rank's tokens of the probability of each expert
  // (its score; of sigmoids, divided by their sum), of lse^2 and of the entropy, divided by the
  // number of tokens of the whole sequence. Padding does not count here and in `counts`.
  T* statistics = nullptr;
  T* counts = nullptr;  // (B, E), choices of each expert
};
// Leaves the experts of a sequence the first `capacity` of their slots, those of first choices
// before those of second ones, each in the order of positions. Padding gets none.
struct LimitSlotsArgs {
  RouterOptions options;  // with whole sequences
  const std::int32_t* mask = nullptr;
  const std::int32_t* choice = nullptr;  // (N, K)
  std::int32_t* kept = nullptr;          // (N, K), or -1
};
template <class T>
struct RouteBackwardArgs {
  RouterOptions options;
  const std::int32_t* mask = nullptr;
  const T *logits = nullptr, *scores = nullptr, *lse = nullptr, *weights = nullptr;
  const std::int32_t* choice = nullptr;
  const T* dweights = nullptr;     // (N, K); may be null
  const T* dstatistics = nullptr;  // (B, E + 2), of which that of the entropy is not read; or null
  const T* counts = nullptr;       // (B, E), of all ranks that share the sequences
  T* dlogits = nullptr;            // (N, E)
};
// What moves the bias: for each expert E times its choices minus the choices of all, over the
// sequences. An integer, positive where the expert has more than an even load.
template <class T>
struct LoadErrorArgs {
  std::int64_t sequences = 0, experts = 0;
  const T* counts = nullptr;   // (B, E)
  bool counts_choices = true;  // false: zeros, as another rank has the same counts
  T* error = nullptr;          // (E)
  bool accumulate = false;
};
// Sums over the sequences: (E + 2), the choices of each expert, the entropy, and the rows that this
// rank's experts compute.
template <class T>
struct RouterLoadArgs {
  std::int64_t sequences = 0, experts = 0;
  const T *statistics = nullptr, *counts = nullptr;
  bool counts_choices = true;          // as above
  const std::int32_t* rows = nullptr;  // (1)
  double* load = nullptr;
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
  const T* statistics = nullptr;   // (B, E + 2), see RouteArgs
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
  T* dstatistics = nullptr;       // (B, E + 2)
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

#define TFM_ROUTER_KERNELS(Stream)                                      \
  void limit_slots(Stream&, const LimitSlotsArgs&);                     \
  template <class T>                                                    \
  void route(Stream&, const RouteArgs<T>&);                             \
  template <class T>                                                    \
  void route_backward(Stream&, const RouteBackwardArgs<T>&);            \
  template <class T>                                                    \
  void load_error(Stream&, const LoadErrorArgs<T>&);                    \
  template <class T>                                                    \
  void router_load(Stream&, const RouterLoadArgs<T>&);                  \
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
TFM_ROUTER_KERNELS(cpu::Stream)
TFM_ROUTER_KERNELS(cuda::Stream)
#undef TFM_ROUTER_KERNELS

}  // namespace tfm::kernels
