#pragma once
// Pieces of updates that look at whole parts of parameters (framework/optim/rules/), on CPUs.
#include <cstdint>

#include "core/dtype.h"
#include "core/step_numbers.h"
#include "device/stream.h"
#include "kernels/optimizer.h"

namespace tfm::kernels {

template <class T>
double sum_of_squares(cpu::Stream&, std::int64_t n, const T* x);
// `to` += the squares at x, which are those of `range` of a buffer: exact over blocks of 64 of its
// elements, as square_sum() is, so that the total does not depend on how ranks share the blocks.
template <class T>
void add_squares(cpu::Stream&, const T* x, Range range, SquareSum& to);
double total(const SquareSum& squares);

// Adam's direction plus rule.decay * param, in place of the gradient.
template <class T>
struct AdamDirectionArgs {
  std::int64_t n = 0;
  AdamRule rule;
  UpdateNumbers numbers;
  double gradient_factor = 1;
  const T* param = nullptr;
  T* grad = nullptr;
  T* m = nullptr;
  T* v = nullptr;
};
template <class T>
void adam_direction(cpu::Stream&, const AdamDirectionArgs<T>&);

// param = shrink * param - step * direction; with it average and rounded as in UpdateRange.
template <class T, class P>
struct DescendArgs {
  std::int64_t n = 0;
  double shrink = 1, step = 0, keep = 0;
  const T* direction = nullptr;
  T* param = nullptr;
  T* average = nullptr;
  P* rounded = nullptr;
};
template <class T, class P>
void descend(cpu::Stream&, const DescendArgs<T, P>&);

// Elements [first, first + n) of a matrix of `cols` columns, of which grad holds the first one on.
template <class T>
struct MatrixRange {
  std::int64_t first = 0, n = 0, cols = 0;
  T* grad = nullptr;
  double gradient_factor = 1;
};
// rows[r] and columns[c] += the squares of the gradient in row r and column c times `scale`,
// rounded to whole numbers, whose sums do not depend on their order.
template <class T>
void add_squares(cpu::Stream&, const MatrixRange<T>&, double scale, std::int64_t* rows,
                 std::int64_t* columns);
// grad = gradient_factor * grad / sqrt(max(rows[r] * columns[c] / mean, least^2)).
template <class T>
void divide_by_root(cpu::Stream&, const MatrixRange<T>&, const T* rows, const T* columns, T mean,
                    double least);
// v += share * (g^2 - v); grad = g / sqrt(max(v, least^2)), where g = gradient_factor * grad.
template <class T>
struct DivideByRootArgs {
  std::int64_t n = 0;
  double share = 1, least = 0, gradient_factor = 1;
  T* grad = nullptr;
  T* v = nullptr;
};
template <class T>
void divide_by_root(cpu::Stream&, const DivideByRootArgs<T>&);

// m += (1 - momentum) * (g - m); grad = m, or with Nesterov's momentum g + momentum * (m - g).
template <class T>
struct MomentumArgs {
  std::int64_t n = 0;
  double momentum = 0, gradient_factor = 1;
  bool nesterov = false;
  T* grad = nullptr;
  T* m = nullptr;
};
template <class T>
void momentum(cpu::Stream&, const MomentumArgs<T>&);

}  // namespace tfm::kernels
