// Heads of latent attention: a thread for each element.
#include "kernels/cuda/rotations.h"
#include "kernels/latent_heads.inl"
#include "kernels/scratch.h"

namespace tfm::kernels {
namespace {

template <class T>
__global__ void __launch_bounds__(kThreads)
    latent_heads_kernel(LatentHeadsArgs<T> a, const Accum<T>* table) {
  const std::int64_t n = std::int64_t{blockIdx.x} * kThreads + threadIdx.x, size = a.sizes.head(),
                     width = a.sizes.heads * size;
  if (n >= a.rows * 3 * width) return;
  const std::int64_t r = n / (3 * width), at = n % width;
  a.qkv[n] = latent_element(a, r, static_cast<int>(n / width % 3), at / size, at % size,
                            table + r % a.positions.length * a.sizes.turning);
}

// Columns of q, then of kv, then of the shared key.
template <class T>
__global__ void __launch_bounds__(kThreads)
    latent_heads_backward_kernel(LatentHeadsBackwardArgs<T> a, const Accum<T>* table) {
  const LatentSizes& s = a.sizes;
  const std::int64_t q = s.heads * s.head(), of_kv = s.plain + s.values, kv = s.heads * of_kv,
                     width = q + kv + s.turning,
                     n = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (n >= a.rows * width) return;
  const std::int64_t r = n / width, c = n % width;
  const Accum<T>* const angles = table + r % a.positions.length * s.turning;
  if (c < q && a.dq)
    put(a.dq, r * q + c, latent_gradient(a, r, 0, c / s.head(), c % s.head(), angles), a.adds_q);
  else if (c >= q && c < q + kv && a.dkv)
    put(a.dkv, r * kv + c - q, latent_gradient(a, r, 1, (c - q) / of_kv, (c - q) % of_kv, angles),
        a.adds_kv);
  else if (c >= q + kv && a.dshared)
    put(a.dshared, r * s.turning + c - q - kv, latent_gradient(a, r, 2, 0, c - q - kv, angles),
        a.adds_shared);
}

template <class T>
__global__ void __launch_bounds__(kThreads) turn_kernel(TurnArgs<T> a, const Accum<T>* table) {
  const std::int64_t n = std::int64_t{blockIdx.x} * kThreads + threadIdx.x,
                     width = a.heads * a.turning;
  if (n >= a.rows * width) return;
  const std::int64_t r = n / width, h = n % width / a.turning, i = n % a.turning;
  a.y[r * a.y_row + h * a.y_head + i] =
      T(turned(a.x + r * a.x_row + h * a.x_head, i, a.turning,
               table + r % a.positions.length * a.turning, Accum<T>{1}));
}

unsigned blocks(std::int64_t n) { return static_cast<unsigned>(ceil_div(n, kThreads)); }

// Calls f(table of angles).
template <class W, class F>
void with_angles(cuda::Stream& stream, const Positions& p, std::int64_t rows, std::int64_t turning,
                 F&& f) {
  const std::int64_t distinct = std::min(rows, p.length);
  cuda::Scratch<W> table(stream, std::max<std::int64_t>(1, distinct * turning));
  rotations<W>(stream, {distinct, 0, p.length, p.offset}, p.frequency, p.factor, turning / 2,
               table);
  f(static_cast<W*>(table));
}

}  // namespace

template <class T>
void latent_heads(cuda::Stream& stream, const LatentHeadsArgs<T>& a) {
  with_angles<Accum<T>>(stream, a.positions, a.rows, a.sizes.turning, [&](const Accum<T>* table) {
    cuda::launch(stream, latent_heads_kernel<T>,
                 blocks(a.rows * 3 * a.sizes.heads * a.sizes.head()), kThreads, 0, a, table);
  });
}
template <class T>
void latent_heads_backward(cuda::Stream& stream, const LatentHeadsBackwardArgs<T>& a) {
  const LatentSizes& s = a.sizes;
  with_angles<Accum<T>>(stream, a.positions, a.rows, s.turning, [&](const Accum<T>* table) {
    cuda::launch(stream, latent_heads_backward_kernel<T>,
                 blocks(a.rows * (s.heads * (s.head() + s.plain + s.values) + s.turning)), kThreads,
                 0, a, table);
  });
}
template <class T>
void turn(cuda::Stream& stream, const TurnArgs<T>& a) {
  with_angles<Accum<T>>(stream, a.positions, a.rows, a.turning, [&](const Accum<T>* table) {
    cuda::launch(stream, turn_kernel<T>, blocks(a.rows * a.heads * a.turning), kThreads, 0, a,
                 table);
  });
}

#define TFM_INSTANTIATE(T)                                                               \
  template void latent_heads(cuda::Stream&, const LatentHeadsArgs<T>&);                  \
  template void latent_heads_backward(cuda::Stream&, const LatentHeadsBackwardArgs<T>&); \
  template void turn(cuda::Stream&, const TurnArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
