#include "kernels/router.h"

#include <algorithm>

#include "kernels/cpu/parallel.h"
#include "kernels/router.inl"

namespace tfm::kernels {

template <class T>
void route(cpu::Stream& stream, const RouteArgs<T>& a) {
  const RouterOptions& o = a.options;
  const std::int64_t length = o.rows.sequence_length;
  parallel(stream, o.rows.sequences, o.rows.tokens() * o.experts * 16, [&](std::int64_t b) {
    T* const of = a.statistics + b * routing_statistics(o.experts);
    T* const counts = a.counts + b * o.experts;
    std::fill_n(of, routing_statistics(o.experts), T{0});
    std::fill_n(counts, o.experts, T{0});
    each_row(o.rows, b, 0, length, [&](std::int64_t n, std::int64_t t) {
      route_row(a, n);
      if (!counts_at(a, b, t)) return;
      const T* const scores = a.scores + n * o.experts;
      const T sum = score_sum(o, scores);
      for (std::int64_t e = 0; e < o.experts; ++e) of[e] += scores[e] / sum;
      of[o.experts] += a.lse[n] * a.lse[n];
      of[o.experts + 1] += a.entropy[n];
      for (std::int64_t k = 0; k < o.top_k; ++k) counts[a.choice[n * o.top_k + k]] += 1;
    });
    const auto tokens = static_cast<T>(std::max<std::int64_t>(real_tokens(a, b), 1));
    for (std::int64_t e = 0; e < routing_statistics(o.experts); ++e) of[e] /= tokens;
  });
}

void limit_slots(cpu::Stream& stream, const LimitSlotsArgs& a) {
  const RouterOptions& o = a.options;
  parallel(stream, o.rows.sequences * o.experts, o.rows.tokens() * o.experts * o.top_k,
           [&](std::int64_t i) { limit_slots_of(a, i / o.experts, i % o.experts); });
}

template <class T>
void route_backward(cpu::Stream& stream, const RouteBackwardArgs<T>& a) {
  const RouterOptions& o = a.options;
  parallel(stream, o.rows.sequences, o.rows.tokens() * o.experts * 16, [&](std::int64_t b) {
    each_row(o.rows, b, 0, o.rows.sequence_length, [&](std::int64_t n, std::int64_t t) {
      route_row_backward(a, n, b, counts_at(a, b, t));
    });
  });
}

template <class T>
void load_error(cpu::Stream&, const LoadErrorArgs<T>& a) {
  for (std::int64_t e = 0; e < a.experts; ++e) load_error_of(a, e);
}
template <class T>
void router_load(cpu::Stream&, const RouterLoadArgs<T>& a) {
  for (std::int64_t i = 0; i < a.experts + 2; ++i) router_load_of(a, i);
}

template <class T>
void router_term(cpu::Stream&, const RouterTermArgs<T>& a) {
  double sum = a.before ? *a.before : 0;
  for (std::int64_t b = 0; b < a.sequences; ++b) sum += router_term_of(a, b);
  *a.sum = sum;
}
template <class T>
void router_term_backward(cpu::Stream&, const RouterTermBackwardArgs<T>& a) {
  for (std::int64_t b = 0; b < a.sequences; ++b) router_term_row_backward(a, b);
}

template <class T>
void sum_routing(cpu::Stream&, const SumRoutingArgs<T>& a) {
  for (std::int64_t i = 0; i <= 2 * a.experts; ++i) a.sums[i] = sum_of_routing(a, i);
}
template <class T>
void sum_routing_backward(cpu::Stream&, const SumRoutingBackwardArgs<T>& a) {
  for (std::int64_t b = 0; b < a.sequences; ++b) sum_routing_row_backward(a, b);
}
template <class T>
void batch_balance(cpu::Stream&, const BatchBalanceArgs<T>& a) {
  batch_balance_all(a);
}
template <class T>
void batch_balance_backward(cpu::Stream&, const BatchBalanceBackwardArgs<T>& a) {
  for (std::int64_t i = 0; i <= 2 * a.experts; ++i) batch_balance_element_backward(a, i);
}

#define TFM_INSTANTIATE(T)                                                            \
  template void route(cpu::Stream&, const RouteArgs<T>&);                             \
  template void route_backward(cpu::Stream&, const RouteBackwardArgs<T>&);            \
  template void load_error(cpu::Stream&, const LoadErrorArgs<T>&);                    \
  template void router_load(cpu::Stream&, const RouterLoadArgs<T>&);                  \
  template void router_term(cpu::Stream&, const RouterTermArgs<T>&);                  \
  template void router_term_backward(cpu::Stream&, const RouterTermBackwardArgs<T>&); \
  template void sum_routing(cpu::Stream&, const SumRoutingArgs<T>&);                  \
  template void sum_routing_backward(cpu::Stream&, const SumRoutingBackwardArgs<T>&); \
  template void batch_balance(cpu::Stream&, const BatchBalanceArgs<T>&);              \
  template void batch_balance_backward(cpu::Stream&, const BatchBalanceBackwardArgs<T>&);
TFM_INSTANTIATE(float)
TFM_INSTANTIATE(double)

}  // namespace tfm::kernels
