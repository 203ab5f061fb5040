// Muon's momentum, and the scale at which its iterations start.
#include "kernels/cuda/reductions.h"
#include "kernels/cuda/updates.h"
#include "kernels/muon.h"
#include "kernels/muon.inl"

namespace tfm::kernels {
namespace {

struct Move {
  template <class T, class P>
  __device__ void operator()(const PartElements<T, P>& r, std::int64_t at, Part part,
                             const Momentum<T>& momentum) const {
    const auto g = load_pack(r.grad + at, part), before = load_pack(r.m + at, part);
    T grad[kPack], m[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) {
      grad[i] = g[i], m[i] = before[i];
      momentum(grad[i], m[i], momentum.nesterov);
    }
    store_pack(r.m + at, part, m);
    store_pack(r.grad + at, part, grad);
  }
};

constexpr std::size_t kSumShared = kThreads / kWarp * sizeof(double);

template <class T>
__global__ void __launch_bounds__(kThreads)
    squares_kernel(std::int64_t n, const T* x, double* partial) {
  double sum[1] = {0};
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n;
       i += std::int64_t{gridDim.x} * kThreads) {
    const auto v = static_cast<double>(x[i]);
    sum[0] += v * v;
  }
  over_block(sum, cuda::shared_memory<double>(), Sum{});
  if (threadIdx.x == 0) partial[blockIdx.x] = sum[0];
}

// One block.
template <class T>
__global__ void __launch_bounds__(kThreads)
    inverse_norm_kernel(std::int64_t count, const double* partial, double least, T* inverse) {
  double sum[1] = {0};
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) sum[0] += partial[i];
  over_block(sum, cuda::shared_memory<double>(), Sum{});
  const double norm = sqrt(sum[0]);
  if (threadIdx.x == 0) *inverse = static_cast<T>(1 / (norm < least ? least : norm));
}

template <class T>
struct Scale {
  T* x;
  const T* factor;
  __device__ void operator()(std::int64_t at, Part part) const {
    const auto before = load_pack(x + at, part);
    T v[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) v[i] = before[i] * *factor;
    store_pack(x + at, part, v);
  }
};

}  // namespace

template <class T, class P>
void momentum(cuda::Stream& stream, const MomentumArgs<T, P>& a) {
  const Prepared<Momentum<T>> step(stream, a.momentum, a.nesterov, a.outcome);
  over_ranges<PartElements<T, P>, Momentum<T>>(stream, a.ranges, a.outcome, step, Move{});
}

template <class T>
void normalize(cuda::Stream& stream, const NormalizeArgs<T>& a) {
  if (a.n <= 0) return;
  const std::int64_t blocks =
      std::min<std::int64_t>(kMostSquareBlocks, ceil_div(a.n, std::int64_t{kThreads} * kPack));
  const cuda::Scratch<double> partial(stream, blocks);
  const cuda::Scratch<T> inverse(stream, 1);
  cuda::launch(stream, squares_kernel<T>, static_cast<unsigned>(blocks), kThreads, kSumShared, a.n,
               a.x, partial);
  cuda::launch(stream, inverse_norm_kernel<T>, 1, kThreads, kSumShared, blocks, partial, a.least,
               inverse);
  over_array(stream, a.x, a.n, Scale<T>{a.x, inverse});
}

#define TFM_INSTANTIATE(T, P) template void momentum(cuda::Stream&, const MomentumArgs<T, P>&);
TFM_UPDATES(TFM_INSTANTIATE)
template void normalize(cuda::Stream&, const NormalizeArgs<float>&);
template void normalize(cuda::Stream&, const NormalizeArgs<double>&);

}  // namespace tfm::kernels
