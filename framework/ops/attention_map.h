#pragma once
// The weights that attention gives to keys, for looking at. The op stores none, so they are
// computed again on the host by the definition, slowly.
#include <functional>
#include <optional>
#include <span>

#include "ops/ops.h"

namespace tfm::ops {

// What a node of attention reads; absent values have id -1.
struct AttentionNode {
  const AttentionOptions* options;
  std::int64_t batch;  // sequences
  graph::Value q, kv, q_segments, k_segments, prefixes, relative_bias, sinks;
};
// Absent if the node is none, or of another type than float32.
std::optional<AttentionNode> attention_node(const graph::Node& node);

// In host memory. Queries are this rank's rows (core/rows.h), keys those of whole sequences, both
// of this rank's heads; the rest as in AttentionInputs, null if absent.
struct AttentionOperands {
  const float* q;  // (N, q_stride)
  std::int64_t q_stride;
  const float* k;  // (B S, KV D)
  const std::int32_t* q_segments = nullptr;
  const std::int32_t* k_segments = nullptr;
  const std::int32_t* prefixes = nullptr;
  const float* relative_bias = nullptr;  // (H, buckets)
  std::int64_t buckets = 0;
  const float* sinks = nullptr;
};
// Calls f(sequence, head, position of the query, weights of the S keys) for each query of each head
// of this rank. Weights of keys that are not seen are 0; with sinks the sum is below 1.
using TakeWeights =
    std::function<void(std::int64_t, std::int64_t, std::int64_t, std::span<const float>)>;
void attention_map(const AttentionNode& node, const AttentionOperands& in, const TakeWeights& f);

}  // namespace tfm::ops
