#pragma once
// Fusion of two adjacent steps into one kernel, so that the tensor between them passes through
// memory less often. Each row of a table names the two ops, the phase, a condition and the function
// that runs both. The planner looks up every pair of adjacent steps.
#include <typeinfo>

#include "graph/op.h"

namespace tfm::graph {

// A row of the table. In forward, the first output of `first` is the first input of `second`. In
// backward, `first` makes the gradient of its first input, which is the gradient of the first
// output of `second` and has no other reader.
struct Fusion {
  const std::type_info& first;
  const std::type_info& second;
  Phase phase;  // forward (includes recompute) or backward
  // Whether the tensor is stored all the same, for other kernels of `second`.
  bool stored;
  bool (*applies)(const Op& first, const Op& second);
  void (*run)(const Op& first, Exec& of_first, const Op& second, Exec& of_second);

  bool matches(const Op& a, const Op& b, Phase p) const {
    return (p == Phase::backward) == (phase == Phase::backward) && typeid(a) == first &&
           typeid(b) == second && applies(a, b);
  }
};

template <class First, class Second>
bool always(const First&, const Second&) {
  return true;
}

template <class First, class Second, void (*run)(const First&, Exec&, const Second&, Exec&),
          bool (*applies)(const First&, const Second&) = always<First, Second>>
Fusion fusion(Phase phase, bool stored = false) {
  return {typeid(First),
          typeid(Second),
          phase,
          stored,
          [](const Op& a, const Op& b) {
            return applies(static_cast<const First&>(a), static_cast<const Second&>(b));
          },
          [](const Op& a, Exec& of_a, const Op& b, Exec& of_b) {
            run(static_cast<const First&>(a), of_a, static_cast<const Second&>(b), of_b);
          }};
}

}  // namespace tfm::graph
