#pragma once
// cuDNN's fused attention of 16-bit types on Hopper beside the project's own kernels: where it
// computes the same, and which of them runs. Both keep the same log-sum-exp, so forward may be
// one's and backward the other's. Args: AttentionArgs or AttentionBackwardArgs.
#include "kernels/attention.h"

namespace tfm::kernels {

// The project's kernels, whatever would be faster.
template <class T>
void own_attention(cuda::Stream&, const AttentionArgs<T>&);
template <class T>
void own_attention(cuda::Stream&, const AttentionBackwardArgs<T>&);

// cuDNN computes exactly what the arguments say, and a plan can be worth its making. Not so:
// dropout, whose masks are the project's own; a bias; segments that are more than the lengths of
// sequences, or causal; causal rows that see no key; caches, whose keys grow in number with each
// call; fewer than 64 queries or keys; heads of more than 256 elements; anything not in whole
// chunks of 16 bytes.
template <class Args>
bool cudnn_computes(const Args&);

// By cuDNN. False, and nothing is done, where it does not compute this or cannot: no Hopper, no
// library or one before 9.16, a shape that it refuses, a workspace beyond what kernels/scratch.h
// says.
template <class Args>
bool cudnn_attention(cuda::Stream&, const Args&);
// The same, but false also where the own kernel is faster: measured at the first call with a shape
// and kept for ranks and later runs (device/cuda/measure.h). While a graph is captured nothing is
// measured, and what is not known yet is the own kernel's.
template <class Args>
bool cudnn_attention_if_faster(cuda::Stream&, const Args&);

}  // namespace tfm::kernels
