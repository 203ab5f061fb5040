// Packs of eight elements, see packs.h.
#include <cmath>

#include "kernels/cuda/packs.h"
#include "kernels/gate.h"

namespace tfm::kernels {
namespace {

template <class T>
struct Gated {
  GateArgs<T> a;
  template <class P>
  __device__ void operator()(std::int64_t at, P part) const {
    using W = Accum<T>;
    const auto x = load_pack(a.x + at, part), z = load_pack(a.z + at, part);
    W y[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) {
      const W s = W(1) / (W(1) + std::exp(-z[i]));
      y[i] = x[i] * (a.kind == Gate::silu ? z[i] * s : s);
    }
    store_pack(a.y + at, part, y);
  }
};

template <class T>
struct GatedBackward {
  GateBackwardArgs<T> a;
  template <class P>
  __device__ void operator()(std::int64_t at, P part) const {
    using W = Accum<T>;
    const auto x = load_pack(a.x + at, part), z = load_pack(a.z + at, part),
               dy = load_pack(a.dy + at, part);
    W dx[kPack], dz[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) {
      const W s = W(1) / (W(1) + std::exp(-z[i])), falling = s * (W(1) - s);
      dx[i] = dy[i] * (a.kind == Gate::silu ? z[i] * s : s);
      dz[i] = dy[i] * x[i] * (a.kind == Gate::silu ? s + z[i] * falling : falling);
    }
    if (a.dx) store_pack(a.dx + at, part, dx, a.adds_x);
    if (a.dz) store_pack(a.dz + at, part, dz, a.adds_z);
  }
};

}  // namespace

template <class T>
void gate(cuda::Stream& stream, const GateArgs<T>& a) {
  over_array(stream, a.y, a.n, Gated<T>{a});
}
template <class T>
void gate_backward(cuda::Stream& stream, const GateBackwardArgs<T>& a) {
  over_array(stream, a.dy, a.n, GatedBackward<T>{a});
}

#define TFM_INSTANTIATE(T)                               \
  template void gate(cuda::Stream&, const GateArgs<T>&); \
  template void gate_backward(cuda::Stream&, const GateBackwardArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
