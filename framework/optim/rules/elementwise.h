#pragma once
// Elementwise rules: one pass of a kernel over flat ranges.
#include <cmath>

#include "kernels/optimizer.h"
#include "optim/rule.h"

namespace tfm::optim {

// The gradient, to which coupled weight decay is added.
inline double with_decay(const FirstUpdate& u, double decay) {
  const double pull = u.decays ? u.weight * decay : 0;
  return u.gradient + pull + u.rounding * (std::abs(u.gradient) + std::abs(pull));
}

// Updates the ranges of a group by a rule of kernels/optimizer.h. The group's states are the rule's
// moments, in order.
template <class KernelRule>
void update_elements(const Update& u, const KernelRule& rule, int group = 0) {
  device::on(u.stream, [&](auto& s) {
    with_float(u.dtype, [&]<class P>() {
      using T = Accum<P>;
      thread_local std::vector<kernels::UpdateRange<T, P>> ranges;  // a step allocates nothing
      ranges.clear();
      for (const StateRange& r : u.shards.ranges)
        if (r.group == group)
          ranges.push_back({r.end - r.begin, r.decay, u.flat.weights_of<P>(r),
                            u.flat.gradients_of<T>(r), u.state<T>(r, 0), u.state<T>(r, 1),
                            u.flat.average_of<T>(r)});
      kernels::update(s, kernels::UpdateArgs<KernelRule, T, P>{ranges, rule, u.numbers, u.outcome});
    });
  });
}

}  // namespace tfm::optim
