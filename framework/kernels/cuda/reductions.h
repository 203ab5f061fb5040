#pragma once
// Sums and maxima over the threads of a warp or block, in a fixed order.
#include "kernels/cuda/packs.h"

namespace tfm::kernels {

// filler(v) is a value that does not change a reduction in which v takes part.
struct Sum {
  template <class V>
  __device__ V operator()(V a, V b) const {
    return a + b;
  }
  template <class V>
  __device__ V filler(V) const {
    return 0;
  }
};
struct Maximum {
  template <class V>
  __device__ V operator()(V a, V b) const {
    return a > b ? a : b;
  }
  template <class V>
  __device__ V filler(V v) const {
    return v;
  }
};

// Reduces v, or each v[n], over all threads of the warp or block; every thread gets the result.
// `shared` holds N values per warp; a barrier must separate two uses of the same memory.
template <class V, class Op>
__device__ V over_warp(V v, Op op) {
  TFM_UNROLL
  for (int mask = kWarp / 2; mask > 0; mask /= 2) v = op(v, cuda::shuffle_xor(v, mask));
  return v;
}
template <int N, class V, class Op>
__device__ void over_block(V (&v)[N], V* shared, Op op) {
  const unsigned warps = blockDim.x / kWarp, lane = threadIdx.x % kWarp;
  TFM_UNROLL
  for (int n = 0; n < N; ++n) {
    v[n] = over_warp(v[n], op);
    if (lane == 0) shared[n * warps + threadIdx.x / kWarp] = v[n];
  }
  cuda::block_barrier();
  TFM_UNROLL
  for (int n = 0; n < N; ++n) {
    const V of_warp = shared[n * warps + (lane < warps ? lane : 0)];
    v[n] = over_warp(lane < warps ? of_warp : op.filler(of_warp), op);
  }
}

}  // namespace tfm::kernels
