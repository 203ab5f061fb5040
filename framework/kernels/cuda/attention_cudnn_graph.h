#pragma once
// Attention as graphs of cuDNN's operations, in the forms that its fused engines recognize.
#include "device/cuda/cudnn_graph.h"
#include "kernels/attention.h"
#include "kernels/scratch.h"

namespace tfm::kernels {

// For arguments that cudnn_computes() accepts; only shapes and the scale are read, and whether
// there is padding. Operands in order: q, k, v, out, lse; for backward then dout, dq, dk, dv; with
// padding then how many queries and how many keys of each sequence are real, at least one: (B) of
// int32. Nothing says what is written for those that are not.
template <class T>
cuda::cudnn::Graph attention_graph(const AttentionArgs<T>&, QuerySums = QuerySums::in_order);
template <class T>
cuda::cudnn::Graph attention_graph(const AttentionBackwardArgs<T>&,
                                   QuerySums = QuerySums::in_order);

// The part from a sequence and a key head on. A graph is the same for all parts of one size; where
// it has some heads only, its batch must be 1, since cuDNN wants the log-sum-exp without gaps.
template <class T>
AttentionArgs<T> part_of(const AttentionArgs<T>&, AttentionPart size, std::int64_t sequence,
                         std::int64_t group);
template <class T>
AttentionBackwardArgs<T> part_of(const AttentionBackwardArgs<T>&, AttentionPart size,
                                 std::int64_t sequence, std::int64_t group);

}  // namespace tfm::kernels
