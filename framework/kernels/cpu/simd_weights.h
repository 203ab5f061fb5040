#pragma once
// Access to master weights. They are loaded as vectors of floats; storing them also stores the
// parameters.
#include "core/master_weights.h"
#include "kernels/cpu/simd_half.h"

namespace tfm::kernels {

template <class Mask>
TFM_INLINE inline Vec<float> load(MasterWeights w, Mask m) {
  return load(w.master, m);
}
template <class Mask>
TFM_INLINE inline Vec<float> load_ahead(MasterWeights w, Mask m) {
  return load_ahead(w.master, m);
}
template <class Mask>
TFM_INLINE inline void store(MasterWeights w, Vec<float> v, Mask m) {
  store(w.master, v, m);
  store(w.rounded, v, m);
}
template <class Mask>
TFM_INLINE inline Vec<float> load(SplitMasterWeights w, Mask m) {
  const Bits rounded = extend(load_bits(w.rounded, m));
  const Ints remainder = extend((SignedShorts)load_bits(w.remainder, m));
  return (Vec<float>)((rounded << 16) + (Bits)remainder);
}
template <class Mask>
TFM_INLINE inline Vec<float> load_ahead(SplitMasterWeights w, Mask m) {
  __builtin_prefetch(w.rounded + kAhead);
  __builtin_prefetch(w.remainder + kAhead);
  return load(w, m);
}
template <class Mask>
TFM_INLINE inline void store(SplitMasterWeights w, Vec<float> v, Mask m) {
  const Bits u = v != v ? Bits{} + 0x7FC00000u : (Bits)v;
  store_bits(w.rounded, upper_halves(u + 0x8000u), m);
  store_bits(w.remainder, truncate(u), m);
}

}  // namespace tfm::kernels
