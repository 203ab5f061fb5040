#pragma once
// Neighbouring steps that one kernel runs at once, so that what one hands to the other need not
// pass through memory. A table says which: a row names the two ops, the phase, a condition and the
// function that runs both; the planner looks up each pair of neighbours.
#include <typeinfo>

#include "graph/op.h"

namespace tfm::graph {

// In forward the first op's first output is the second's first input; in backward the first makes
// the gradient of its first input, which is that of the second's first output, and nobody else
// reads it.
struct StepPair {
  const std::type_info& first;
  const std::type_info& second;
  Phase phase;  // forward: recomputation, too
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
StepPair step_pair(Phase phase) {
  return {typeid(First), typeid(Second), phase,
          [](const Op& a, const Op& b) {
            return applies(static_cast<const First&>(a), static_cast<const Second&>(b));
          },
          [](const Op& a, Exec& of_a, const Op& b, Exec& of_b) {
            run(static_cast<const First&>(a), of_a, static_cast<const Second&>(b), of_b);
          }};
}

}  // namespace tfm::graph
