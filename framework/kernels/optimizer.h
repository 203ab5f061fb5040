#pragma once
// Elementwise parameter updates, each in one pass over memory, and the gradient norm for clipping.
#include <cstdint>
#include <span>

#include "core/master_weights.h"
#include "core/step_numbers.h"
#include "device/stream.h"

namespace tfm::kernels {

// A contiguous range of elements with equal settings. T is the type in which parameters of type P
// are updated.
template <class T, class P = T>
struct UpdateRange {
  std::int64_t n = 0;
  bool decays = true;  // weight decay applies
  Weights<P> param{};
  const T* grad = nullptr;
  T* m = nullptr;  // Adam's first moment, or the momentum buffer (null if momentum is 0)
  T* v = nullptr;  // Adam's second moment
  // Average of the weights or null: average += (1 - keep) * (param - average) (Polyak & Juditsky
  // 1992, exponentially weighted).
  T* average = nullptr;
};
// Adam (Kingma & Ba 2015) and AdamW (Loshchilov & Hutter 2019), with the arithmetic of torch.optim.
struct AdamRule {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0;
  bool decoupled = true;  // true: first p -= lr * decay * p (AdamW); false: g += decay * p (Adam)
};
struct SgdRule {
  double momentum = 0, decay = 0;  // the momentum buffer starts at zero
};
// p -= rate * sign(g), for gradients that are integers.
struct LoadRule {
  double rate = 0;
};
template <class Rule, class T, class P = T>
struct UpdateArgs {
  std::span<const UpdateRange<T, P>> ranges;
  Rule rule;
  const StepNumbers* numbers = nullptr;
  const StepOutcome* outcome = nullptr;  // gives gradient_factor and applied
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
// Writes outcome->squares: the sum of (x / loss_scale)^2 over `ranges` of x, in which the sums of
// blocks of 64 elements are added exactly, so that it does not depend on how ranks share the
// blocks; and the number of elements of outcome->loss that are not finite.
template <class T>
struct SquareSumArgs {
  const T* x = nullptr;
  std::span<const Range> ranges;
  const StepNumbers* numbers = nullptr;
  StepOutcome* outcome = nullptr;
};
// From outcome->squares, computes the norm, the clip factor as torch.nn.utils.clip_grad_norm_ does,
// and whether the update is applied.
struct ClipArgs {
  double most = 0;  // largest norm; 0: no clipping
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

// Expands f(T, P) for all types P of parameters and T in which they are updated.
#define TFM_UPDATES(f) f(float, float) f(float, bf16) f(float, f16) f(double, double)
// Expands f(rule, T, P) for the rules, whose equations are in optimizer.inl.
#define TFM_UPDATE_RULES(f, T, P) f(AdamRule, T, P) f(SgdRule, T, P) f(LoadRule, T, P)

}  // namespace tfm::kernels
