#pragma once
// Access to master weights. They are loaded as floats; storing them also stores the parameters.
#include "core/master_weights.h"
#include "kernels/cuda/packs.h"

namespace tfm::kernels {

// Whether N adjacent elements can be moved by one access.
template <int N, class T>
__device__ bool vectors_fit(const T* p) {
  return reinterpret_cast<std::uintptr_t>(p) % (N * sizeof(T)) == 0;
}
template <int N>
__device__ bool vectors_fit(MasterWeights w) {
  return vectors_fit<N>(w.master) && vectors_fit<N>(w.rounded);
}
template <int N>
__device__ bool vectors_fit(SplitMasterWeights w) {
  return vectors_fit<N>(w.remainder) && vectors_fit<N>(w.rounded);
}

template <int N, class T>
__device__ cuda::Pack<T, N> load_vector(const T* p) {
  return cuda::load<cuda::Pack<T, N>>(p);
}
template <int N>
__device__ cuda::Pack<float, N> load_vector(MasterWeights w) {
  return load_vector<N>(w.master);
}
template <int N>
__device__ cuda::Pack<float, N> load_vector(SplitMasterWeights w) {
  const auto rounded = load_vector<N>(w.rounded);
  const auto remainder = load_vector<N>(w.remainder);
  cuda::Pack<float, N> v;
  TFM_UNROLL
  for (int i = 0; i < N; ++i) v.at[i] = join_weight(rounded.at[i], remainder.at[i]);
  return v;
}

template <class T, int N>
__device__ void store_vector(T* p, const cuda::Pack<T, N>& v) {
  cuda::store(p, v);
}
template <int N>
__device__ void store_vector(MasterWeights w, const cuda::Pack<float, N>& v) {
  cuda::Pack<f16, N> rounded;
  TFM_UNROLL
  for (int i = 0; i < N; ++i) rounded.at[i] = cuda::narrow<f16>(v.at[i]);
  cuda::store(w.master, v);
  cuda::store(w.rounded, rounded);
}
template <int N>
__device__ void store_vector(SplitMasterWeights w, const cuda::Pack<float, N>& v) {
  cuda::Pack<bf16, N> rounded;
  cuda::Pack<Remainder, N> remainder;
  TFM_UNROLL
  for (int i = 0; i < N; ++i) {
    const SplitWeight split = split_weight(v.at[i]);
    rounded.at[i] = split.rounded, remainder.at[i] = split.remainder;
  }
  cuda::store(w.rounded, rounded);
  cuda::store(w.remainder, remainder);
}

// As in packs.h.
__device__ inline Eight<float> load_pack(MasterWeights w, Part part) {
  return load_pack(w.master, part);
}
__device__ inline Eight<float> load_pack(SplitMasterWeights w, Part part) {
  Eight<float> v{};
  const bool whole = part.full() && vectors_fit<kPack>(w);
  const auto all = whole ? load_vector<kPack>(w) : cuda::Pack<float, kPack>{};
  TFM_UNROLL
  for (int i = 0; i < kPack; ++i)
    if (part.has(i)) v.set(i, whole ? all.at[i] : w[i]);
  return v;
}
__device__ inline void store_pack(MasterWeights w, Part part, const float (&v)[kPack]) {
  store_pack(w.master, part, v);
  store_pack(w.rounded, part, v);
}
__device__ inline void store_pack(SplitMasterWeights w, Part part, const float (&v)[kPack]) {
  if (part.full() && vectors_fit<kPack>(w)) {
    cuda::Pack<float, kPack> all;
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) all.at[i] = v[i];
    return store_vector(w, all);
  }
  TFM_UNROLL
  for (int i = 0; i < kPack; ++i)
    if (part.has(i)) w.set(i, v[i]);
}

}  // namespace tfm::kernels
