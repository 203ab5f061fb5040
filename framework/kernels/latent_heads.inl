// Elements of the heads of latent attention, for CPUs and GPUs. `angles`: of the row's position,
// R/2 cosines, then R/2 sines.
#include <cmath>

#include "kernels/latent_heads.h"

namespace tfm::kernels {
namespace {

// Element i of R columns x, turned forward (sign 1) or back (-1).
template <class T, class W>
constexpr W turned(const T* x, std::int64_t i, std::int64_t turning, const W* angles, W sign) {
  const W cosine = angles[i / 2], sine = angles[turning / 2 + i / 2] * sign;
  return i % 2 == 0 ? W(x[i]) * cosine - W(x[i + 1]) * sine : W(x[i]) * cosine + W(x[i - 1]) * sine;
}

// Column i of query, key or value (part 0, 1, 2) of head h, in row r.
template <class T>
constexpr T latent_element(const LatentHeadsArgs<T>& a, std::int64_t r, int part, std::int64_t h,
                           std::int64_t i, const Accum<T>* angles) {
  const auto& [heads, plain, turning, values] = a.sizes;
  const std::int64_t size = a.sizes.head();
  if (part == 0) {
    const T* const q = a.q + (r * heads + h) * size;
    return i < plain ? q[i] : T(turned(q + plain, i - plain, turning, angles, Accum<T>{1}));
  }
  const T* const kv = a.kv + (r * heads + h) * (plain + values);
  if (part == 2) return i < values ? kv[plain + i] : T(Accum<T>{0});
  return i < plain ? kv[i]
                   : T(turned(a.shared + r * turning, i - plain, turning, angles, Accum<T>{1}));
}

// Gradients of column i of q, kv or shared (part 0, 1, 2).
template <class T>
constexpr Accum<T> latent_gradient(const LatentHeadsBackwardArgs<T>& a, std::int64_t r, int part,
                                   std::int64_t h, std::int64_t i, const Accum<T>* angles) {
  using W = Accum<T>;
  const auto& [heads, plain, turning, values] = a.sizes;
  const std::int64_t size = a.sizes.head(), width = heads * size;
  const T* const row = a.dqkv + r * 3 * width;
  if (part == 0)
    return i < plain ? W(row[h * size + i])
                     : turned(row + h * size + plain, i - plain, turning, angles, W{-1});
  if (part == 1)
    return i < plain ? W(row[width + h * size + i]) : W(row[2 * width + h * size + i - plain]);
  W sum = 0;
  for (std::int64_t k = 0; k < heads; ++k)
    sum += turned(row + width + k * size + plain, i, turning, angles, W{-1});
  return sum;
}

template <class T>
constexpr void put(T* to, std::int64_t at, Accum<T> value, bool accumulate) {
  to[at] = T(accumulate ? Accum<T>(to[at]) + value : value);
}

}  // namespace
}  // namespace tfm::kernels
