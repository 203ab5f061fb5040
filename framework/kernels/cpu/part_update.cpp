#include "kernels/part_update.h"

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_weights.h"
#include "kernels/part_update.inl"

namespace tfm::kernels {

template <class T, class P>
void adam_direction(cpu::Stream& stream, const AdamDirectionArgs<T, P>& a) {
  if (a.outcome->applied == 0) return;
  const AdamDirection<T> direction(a.rule, *a.numbers, *a.outcome);
  for (const PartElements<T, P>& r : a.ranges) {
    const T couple = r.decays ? direction.decay : T{0};
    parallel_ranges(stream, r.n, [&](std::int64_t begin, std::int64_t end) {
      each<T>(end - begin, [&](std::int64_t i, auto mask) TFM_INLINE {
        const std::int64_t at = begin + i;
        Vec<T> grad = load_ahead(r.grad + at, mask), m = load_ahead(r.m + at, mask),
               v = load_ahead(r.v + at, mask);
        direction(load_ahead(r.param + at, mask), grad, m, v, couple);
        store(r.m + at, m, mask);
        store(r.v + at, v, mask);
        store(r.grad + at, grad, mask);
      });
    });
  }
}

template <class Rule, class T, class P>
void descend(cpu::Stream& stream, const DescendArgs<Rule, T, P>& a) {
  if (a.outcome->applied == 0) return;
  for (const PartElements<T, P>& r : a.ranges) {
    const auto descent = Descent<T>::of(a.rule, r, *a.numbers, a.sums);
    parallel_ranges(stream, r.n, [&](std::int64_t begin, std::int64_t end) {
      each<T>(end - begin, [&](std::int64_t i, auto mask) TFM_INLINE {
        const std::int64_t at = begin + i;
        const Vec<T> p = descent(load_ahead(r.param + at, mask), load_ahead(r.grad + at, mask));
        store(r.param + at, p, mask);
        if (r.average) {
          const Vec<T> old = load(r.average + at, mask);
          store(r.average + at, old + (p - old) * descent.rate, mask);
        }
      });
    });
  }
}

#define TFM_INSTANTIATE_RULE(Rule, T, P) \
  template void descend(cpu::Stream&, const DescendArgs<Rule, T, P>&);
#define TFM_INSTANTIATE(T, P)                                                 \
  template void adam_direction(cpu::Stream&, const AdamDirectionArgs<T, P>&); \
  TFM_DESCENTS(TFM_INSTANTIATE_RULE, T, P)
TFM_UPDATES(TFM_INSTANTIATE)

}  // namespace tfm::kernels
