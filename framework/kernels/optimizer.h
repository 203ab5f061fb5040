#pragma once
// Parameter updates, each one pass over memory, and the norm that clips them.
#include <cstdint>
#include <span>

#include "core/master_weights.h"
#include "core/step_numbers.h"
#include "device/stream.h"

namespace tfm::kernels {

// Elements that are updated alike. T: what parameters of type P are updated in.
template <class T, class P = T>
struct UpdateRange {
  std::int64_t n = 0;
  bool decays = true;  // weight decay applies
  Weights<P> param{};
  const T* grad = nullptr;
  T* m = nullptr;        // Adam's first moment, or momentum's buffer (null when momentum is 0)
  T* v = nullptr;        // Adam's second moment
  T* average = nullptr;  // of the weights, or null: average += (1 - keep) * (param - average)
                         // (Polyak & Juditsky 1992, exponentially weighted)
};
// Adam (Kingma & Ba 2015) and AdamW (Loshchilov & Hutter 2019), arithmetic as in torch.optim.
struct AdamRule {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0;
  bool decoupled = true;  // true: p -= lr*decay*p first (AdamW); false: g += decay*p (Adam)
};
struct SgdRule {
  double momentum = 0, decay = 0;  // the buffer starts with zeros
};
template <class Rule, class T, class P = T>
struct UpdateArgs {
  std::span<const UpdateRange<T, P>> ranges;
  Rule rule;
  const StepNumbers* numbers = nullptr;
  const StepOutcome* outcome = nullptr;  // gradient_factor, and whether there is an update
};
// Exchanges weights with their average.
template <class P>
struct SwapArgs {
  std::int64_t n = 0;
  Weights<P> param{};
  Accum<P>* average = nullptr;
};
struct Range {
  std::int64_t begin = 0, end = 0;
};
// outcome->squares: the sums of x^2 over `ranges` of x, as an exact integer over blocks of 64
// elements, so that the result does not depend on how the blocks are split; and which of
// outcome->loss are not finite.
template <class T>
struct SquareSumArgs {
  const T* x = nullptr;
  std::span<const Range> ranges;
  const StepNumbers* numbers = nullptr;
  StepOutcome* outcome = nullptr;
};
// The norm of outcome->squares, and from it what the update does, as torch.nn.utils.clip_grad_norm_
// clips.
struct ClipArgs {
  double most = 0;  // 0: off
  const StepNumbers* numbers = nullptr;
  StepOutcome* outcome = nullptr;
};

template <class Rule, class T, class P>
void update(cpu::Stream&, const UpdateArgs<Rule, T, P>&);
template <class P>
void swap(cpu::Stream&, const SwapArgs<P>&);
template <class T>
void square_sum(cpu::Stream&, const SquareSumArgs<T>&);
void clip(cpu::Stream&, const ClipArgs&);
template <class Rule, class T, class P>
void update(cuda::Stream&, const UpdateArgs<Rule, T, P>&);
template <class P>
void swap(cuda::Stream&, const SwapArgs<P>&);
template <class T>
void square_sum(cuda::Stream&, const SquareSumArgs<T>&);
void clip(cuda::Stream&, const ClipArgs&);

// f(T, P) for the types of weights and of what the model computes with.
#define TFM_UPDATES(f) f(float, float) f(float, bf16) f(float, f16) f(double, double)
// f(rule, T, P) for the rules, whose equations are in optimizer.inl.
#define TFM_UPDATE_RULES(f, T, P) f(AdamRule, T, P) f(SgdRule, T, P)

}  // namespace tfm::kernels
