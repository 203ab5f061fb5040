#pragma once
// Attention as graphs of cuDNN operations, in the forms that its fused engines recognize.
#include "device/cuda/cudnn_graph.h"
#include "kernels/attention.h"
#include "kernels/scratch.h"

namespace tfm::kernels {

// For arguments that cudnn_computes() accepts, of which only shapes, strides, the scale and the
// presence of padding are read. Operands in order: q, k, v, out, lse; for backward then dout, dq,
// dk, dv; with padding then the numbers of real queries and of real keys of each sequence, both
// int32 (B) and at least 1. Results at padding are undefined.
template <class T>
cuda::cudnn::Graph attention_graph(const AttentionArgs<T>&);
template <class T>
cuda::cudnn::Graph attention_graph(const AttentionBackwardArgs<T>&);

// Arguments of the part that starts at a sequence and a key head. All parts of one size have the
// same graph. A part with only some of the heads must have batch 1, since cuDNN requires a
// contiguous log-sum-exp.
template <class T>
AttentionArgs<T> part_of(const AttentionArgs<T>&, AttentionPart size, std::int64_t sequence,
                         std::int64_t group);
template <class T>
AttentionBackwardArgs<T> part_of(const AttentionBackwardArgs<T>&, AttentionPart size,
                                 std::int64_t sequence, std::int64_t group);

}  // namespace tfm::kernels
