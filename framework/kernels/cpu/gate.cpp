#include "kernels/gate.h"

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_half.h"
#include "kernels/cpu/simd_math.h"

namespace tfm::kernels {
namespace {

template <class T>
TFM_INLINE inline Vec<T> sigmoid(Vec<T> z) {
  return Accum<T>{1} / (Accum<T>{1} + exp(-z));
}

}  // namespace

template <class T>
void gate(cpu::Stream& stream, const GateArgs<T>& a) {
  with_flag(a.kind == Gate::silu, [&](auto silu) {
    parallel_ranges(stream, a.n, [&](std::int64_t begin, std::int64_t end) {
      each<T>(end - begin, [&](std::int64_t i, auto m) TFM_INLINE {
        const Vec<T> z = load_ahead(a.z + begin + i, m), s = sigmoid<T>(z),
                     x = load_ahead(a.x + begin + i, m);
        store(a.y + begin + i, silu() ? x * z * s : x * s, m);
      });
    });
  });
}

template <class T>
void gate_backward(cpu::Stream& stream, const GateBackwardArgs<T>& a) {
  with_flag(a.kind == Gate::silu, [&](auto silu) {
    parallel_ranges(stream, a.n, [&](std::int64_t begin, std::int64_t end) {
      each<T>(end - begin, [&](std::int64_t i, auto m) TFM_INLINE {
        const std::int64_t at = begin + i;
        const Vec<T> z = load_ahead(a.z + at, m), s = sigmoid<T>(z), x = load_ahead(a.x + at, m),
                     dy = load_ahead(a.dy + at, m), value = silu() ? z * s : s,
                     falling = s * (Accum<T>{1} - s), slope = silu() ? s + z * falling : falling;
        const auto put = [&](T* to, Vec<T> d, bool adds) TFM_INLINE {
          if (to) store(to + at, adds ? load(to + at, m) + d : d, m);
        };
        put(a.dx, dy * value, a.adds_x);
        put(a.dz, dy * x * slope, a.adds_z);
      });
    });
  });
}

#define TFM_INSTANTIATE(T)                              \
  template void gate(cpu::Stream&, const GateArgs<T>&); \
  template void gate_backward(cpu::Stream&, const GateBackwardArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
