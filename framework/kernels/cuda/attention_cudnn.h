#pragma once
// cuDNN's fused attention for 16-bit types on Hopper as an alternative to tfm's own kernels. Both
// keep the same log-sum-exp, so forward and backward may use different ones. Backward adds
// gradients of queries up in memory: cuDNN's deterministic form, which stores the gradients of all
// scores, took 1.2 to 1.8 times as long on an H200. Args is AttentionArgs or AttentionBackwardArgs.
#include "kernels/attention.h"

namespace tfm::kernels {

// Runs tfm's own kernels.
template <class T>
void own_attention(cuda::Stream&, const AttentionArgs<T>&);
template <class T>
void own_attention(cuda::Stream&, const AttentionBackwardArgs<T>&);

// Whether cuDNN computes exactly what the arguments say and a plan is worth building
// (AttentionExtents::of_library, and what their addresses and strides allow). Not supported are
// dropout, since masks are tfm's own, and as a tensor they would cost 4 bytes of traffic for each
// score, three times the time of its products on an H200; a bias; a soft cap; segments other than
// right padding, or together with a mask by positions; such masks other than the causal one whose
// queries are the last ones and all see a key; caches, whose number of keys changes with each call;
// fewer than 64 queries or keys; heads of more than 256 elements; and operands that are not aligned
// to 16 bytes in start, stride and head size.
template <class Args>
bool cudnn_computes(const Args&);

// Runs cuDNN's attention. Returns false if cuDNN does not support the arguments or cannot be used:
// no Hopper GPU, no library or one before 9.16, a shape that it rejects, or a workspace larger than
// kernels/scratch.h allows. The results must then be computed otherwise.
template <class Args>
bool cudnn_attention(cuda::Stream&, const Args&);
// The same, but also returns false if tfm's own kernel is faster. This is measured at the first
// call with a shape and kept for other ranks and later runs (device/cuda/measure.h). During graph
// capture nothing is measured, and shapes that are not known yet use the own kernel, as all do with
// Numerics::deterministic.
template <class Args>
bool cudnn_attention_if_faster(cuda::Stream&, const Args&);

}  // namespace tfm::kernels
