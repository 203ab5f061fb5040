// Gates of the gated delta rule, for CPUs and GPUs.
#include <cmath>

#include "kernels/gated_delta.h"

namespace tfm::kernels {
namespace {

template <class W>
struct DeltaGate {
  W x, sigmoid, softplus, rate;  // rate: that of the head, exp(log_rate)
};
// Of input 0 (for beta) or 1 (for g, with its bias) of head h.
template <class T>
constexpr DeltaGate<Accum<T>> delta_gate(const DeltaGatesArgs<T>& a, std::int64_t r, int input,
                                         std::int64_t h) {
  using W = Accum<T>;
  const std::int64_t at = a.two ? r * 2 + input : r;
  const W x = W(a.x[at * a.heads + h]) + (input == 1 ? W(a.bias[h]) : W(0)),
          e = std::exp(x < 0 ? x : -x);
  return {x, (x < 0 ? e : W(1)) / (W(1) + e), (x < 0 ? W(0) : x) + std::log1p(e),
          std::exp(W(a.log_rate[h]))};
}

template <class T>
constexpr void put_gates(const DeltaGatesArgs<T>& a, std::int64_t r, std::int64_t h) {
  const auto g = delta_gate(a, r, 1, h);
  a.gates[r * 2 * a.heads + h] = a.two ? delta_gate(a, r, 0, h).sigmoid : g.softplus;
  a.gates[(r * 2 + 1) * a.heads + h] = -g.rate * g.softplus;
}

template <class T>
constexpr void put_gate_gradients(const DeltaGatesBackwardArgs<T>& a, std::int64_t r,
                                  std::int64_t h) {
  using W = Accum<T>;
  const std::int64_t of_beta = r * 2 * a.heads + h, of_g = of_beta + a.heads;
  const auto g = delta_gate(a, r, 1, h);
  const auto put = [&](std::int64_t to, W d) { a.dx[to] = T(a.adds_x ? W(a.dx[to]) + d : d); };
  const W step = a.two ? W(0) : a.dgates[of_beta],
          dg = (step - a.dgates[of_g] * g.rate) * g.sigmoid;
  a.terms[of_beta] = -a.dgates[of_g] * g.rate * g.softplus;
  a.terms[of_g] = dg;
  if (!a.dx) return;
  if (!a.two) return put(r * a.heads + h, dg);
  const W beta = delta_gate(a, r, 0, h).sigmoid;
  put(of_beta, a.dgates[of_beta] * beta * (W(1) - beta));
  put(of_g, dg);
}

}  // namespace
}  // namespace tfm::kernels
