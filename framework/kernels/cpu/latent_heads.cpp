#include "kernels/latent_heads.inl"

#include "kernels/cpu/rotations.h"
#include "kernels/cpu/simd_half.h"

namespace tfm::kernels {
namespace {

template <class W>
W* angles_of(cpu::Stream& stream, const Positions& p, std::int64_t rows, std::int64_t turning) {
  return rotations<W>(stream, std::min(rows, p.length), turning / 2, p.frequency, p.factor,
                      [&](std::int64_t r) { return r + p.offset; });
}

}  // namespace

template <class T>
void latent_heads(cpu::Stream& stream, const LatentHeadsArgs<T>& a) {
  const std::int64_t heads = a.sizes.heads, size = a.sizes.head();
  const auto* const table = angles_of<Accum<T>>(stream, a.positions, a.rows, a.sizes.turning);
  parallel(stream, a.rows, a.rows * 3 * heads * size, [&](std::int64_t r) {
    const auto* const angles = table + r % a.positions.length * a.sizes.turning;
    T* to = a.qkv + r * 3 * heads * size;
    for (int part = 0; part < 3; ++part)
      for (std::int64_t h = 0; h < heads; ++h, to += size)
        for (std::int64_t i = 0; i < size; ++i) to[i] = latent_element(a, r, part, h, i, angles);
  });
}

template <class T>
void latent_heads_backward(cpu::Stream& stream, const LatentHeadsBackwardArgs<T>& a) {
  const LatentSizes& s = a.sizes;
  const auto* const table = angles_of<Accum<T>>(stream, a.positions, a.rows, s.turning);
  parallel(stream, a.rows, a.rows * 3 * s.heads * s.head(), [&](std::int64_t r) {
    const auto* const angles = table + r % a.positions.length * s.turning;
    const auto each = [&](T* to, int part, std::int64_t heads, std::int64_t width, bool adds) {
      if (!to) return;
      to += r * heads * width;
      for (std::int64_t h = 0; h < heads; ++h, to += width)
        for (std::int64_t i = 0; i < width; ++i)
          put(to, i, latent_gradient(a, r, part, h, i, angles), adds);
    };
    each(a.dq, 0, s.heads, s.head(), a.adds_q);
    each(a.dkv, 1, s.heads, s.plain + s.values, a.adds_kv);
    each(a.dshared, 2, 1, s.turning, a.adds_shared);
  });
}

template <class T>
void turn(cpu::Stream& stream, const TurnArgs<T>& a) {
  const auto* const table = angles_of<Accum<T>>(stream, a.positions, a.rows, a.turning);
  parallel(stream, a.rows, a.rows * a.heads * a.turning, [&](std::int64_t r) {
    const auto* const angles = table + r % a.positions.length * a.turning;
    for (std::int64_t h = 0; h < a.heads; ++h)
      for (std::int64_t i = 0; i < a.turning; ++i)
        a.y[r * a.y_row + h * a.y_head + i] =
            T(turned(a.x + r * a.x_row + h * a.x_head, i, a.turning, angles, Accum<T>{1}));
  });
}

#define TFM_INSTANTIATE(T)                                                              \
  template void latent_heads(cpu::Stream&, const LatentHeadsArgs<T>&);                  \
  template void latent_heads_backward(cpu::Stream&, const LatentHeadsBackwardArgs<T>&); \
  template void turn(cpu::Stream&, const TurnArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
