#pragma once
// 16-bit attention. It is divided among threads by groups of heads that share keys and values.
#include "kernels/attention.h"

namespace tfm::kernels {

// The heads of one group of one sequence, which one task computes.
template <class T>
struct Group {
  const AttentionArgs<T>& a;
  std::int64_t b, heads, width, first_head;

  Group(const AttentionArgs<T>& args, std::int64_t task)
      : a(args),
        b(task / args.kv_heads),
        heads(args.heads / args.kv_heads),
        width(heads * args.head_size),
        first_head(task % args.kv_heads * heads) {}

  std::int64_t q_at() const { return b * a.queries * a.q_stride + first_head * a.head_size; }
  std::int64_t out_at() const { return b * a.queries * a.out_stride + first_head * a.head_size; }
  std::int64_t kv_at() const {
    return b * (a.kv_length ? a.kv_length : a.keys) * a.kv_stride +
           first_head / heads * a.head_size;
  }

  // The group's arguments without operands, for attention in float.
  AttentionArgs<float> options() const {
    return {.batch = 1,
            .heads = heads,
            .kv_heads = 1,
            .queries = a.queries,
            .keys = a.keys,
            .head_size = a.head_size,
            .lse = a.lse + (b * a.heads + first_head) * a.queries,
            .scale = a.scale,
            .softcap = a.softcap,
            .visible = a.visible,
            .prefixes = a.prefixes ? a.prefixes + b : nullptr,
            .k_segments = a.k_segments ? a.k_segments + b * a.all_keys() : nullptr,
            .q_segments = a.q_segments ? a.q_segments + b * a.all_queries() : nullptr,
            .bias = a.bias ? a.bias + first_head * (a.queries + a.keys - 1) : nullptr,
            .dropout = a.dropout,
            .sequence_offset = a.sequence_offset + b,
            .head_offset = a.head_offset + first_head,
            .heads_total = a.heads_total,
            .query_offset = a.query_offset,
            .queries_total = a.queries_total,
            .key_offset = a.key_offset,
            .keys_total = a.keys_total};
  }
};

// Attention of a group by bf16 products, on processors that have them (dot_product.h). The head
// size must be even.
void attention_group(const Group<bf16>& group);
void attention_group_backward(const Group<bf16>& group, const AttentionBackwardArgs<bf16>& args);

}  // namespace tfm::kernels
