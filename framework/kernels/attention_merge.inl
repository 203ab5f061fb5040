// Merging of attention to two parts of the keys, for CPUs and GPUs.
#include <cmath>
#include <limits>

namespace tfm::kernels {
namespace {

// Weights of the outputs of the two parts of a row, and the log-sum-exp over both.
template <class W>
struct MergedRow {
  W before, part, lse;
};
template <class W>
[[gnu::always_inline]] constexpr MergedRow<W> merged_row(W before, W part) {
  const W top = before > part ? before : part;
  if (top == -std::numeric_limits<W>::infinity()) return {W(1), W(0), top};
  const W a = std::exp(before - top), b = std::exp(part - top), sum = a + b;
  return {a / sum, b / sum, top + std::log(sum)};
}

}  // namespace
}  // namespace tfm::kernels
