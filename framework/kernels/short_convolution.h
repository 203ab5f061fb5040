#pragma once
// A causal convolution of each column of a sequence with K weights of its own, then SiLU (Gu and
// Dao 2023, "Mamba", section 3.4):
//   s[t] = b + sum over k < K of w[k] x[t - K + 1 + k],  y = s sigmoid(s).
// Positions before a sequence, or of another segment, are zeros.
#include <cstdint>

#include "core/dtype.h"
#include "device/stream.h"

namespace tfm::kernels {

inline constexpr int kLongestConvolution = 8;  // K

template <class T>
struct ShortConvolutionArgs {
  std::int64_t sequences = 0, length = 0, cols = 0;  // B, T, C
  int kernel = 0;                                    // K
  const T* x = nullptr;                              // (B T, C)
  const T* weight = nullptr;                         // (C, K)
  const T* bias = nullptr;                           // (C); null: zeros
  const std::int32_t* segments = nullptr;            // (B T); null: one for each sequence
  // (B, (K - 1) C): the inputs before the first position, the earliest first; null: zeros. Replaced
  // by the last inputs.
  T* state = nullptr;
  T* y = nullptr;  // (B T, C)
};
template <class T>
struct ShortConvolutionBackwardArgs {
  ShortConvolutionArgs<T> forward;  // without a state; y is not read
  const T* dy = nullptr;
  T* dx = nullptr;                                              // may be null, as the others
  Accum<T>* dweight = nullptr;                                  // (C, K)
  Accum<T>* dbias = nullptr;                                    // (C)
  bool adds_x = false, adds_weight = false, adds_bias = false;  // whether they are added to
};

template <class T>
void short_convolution(cpu::Stream&, const ShortConvolutionArgs<T>&);
template <class T>
void short_convolution_backward(cpu::Stream&, const ShortConvolutionBackwardArgs<T>&);
template <class T>
void short_convolution(cuda::Stream&, const ShortConvolutionArgs<T>&);
template <class T>
void short_convolution_backward(cuda::Stream&, const ShortConvolutionBackwardArgs<T>&);

}  // namespace tfm::kernels
