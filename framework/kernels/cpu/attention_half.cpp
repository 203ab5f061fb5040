// 16-bit queries, keys and values: the heads of one group of one sequence at a time, in float.
#include "kernels/attention.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_half.h"

namespace tfm::kernels {
namespace {

// The part of `a` that one task computes, on copies: queries and output (queries, G D), keys and
// values (keys, 2 D).
template <class T>
struct Group {
  const AttentionArgs<T>& a;
  std::int64_t b, heads, width, first_head, kv_width;

  Group(const AttentionArgs<T>& args, std::int64_t task)
      : a(args),
        b(task / args.kv_heads),
        heads(args.heads / args.kv_heads),
        width(heads * args.head_size),
        first_head(task % args.kv_heads * heads),
        kv_width(2 * args.head_size) {}

  std::int64_t q_at() const { return b * a.queries * a.q_stride + first_head * a.head_size; }
  std::int64_t out_at() const { return b * a.queries * a.out_stride + first_head * a.head_size; }
  std::int64_t kv_at() const {
    return b * (a.kv_length ? a.kv_length : a.keys) * a.kv_stride +
           first_head / heads * a.head_size;
  }

  AttentionArgs<float> copy(float* q, float* kv, float* out) const {
    for (std::int64_t t = 0; t < a.queries; ++t)
      convert_row(a.q + q_at() + t * a.q_stride, q + t * width, width);
    for (std::int64_t s = 0; s < a.keys; ++s) {
      convert_row(a.k + kv_at() + s * a.kv_stride, kv + s * kv_width, a.head_size);
      convert_row(a.v + kv_at() + s * a.kv_stride, kv + s * kv_width + a.head_size, a.head_size);
    }
    return {.batch = 1,
            .heads = heads,
            .kv_heads = 1,
            .queries = a.queries,
            .keys = a.keys,
            .head_size = a.head_size,
            .q = q,
            .k = kv,
            .v = kv + a.head_size,
            .q_stride = width,
            .kv_stride = kv_width,
            .out = out,
            .out_stride = width,
            .lse = a.lse + (b * a.heads + first_head) * a.queries,
            .scale = a.scale,
            .causal = a.causal,
            .k_segments = a.k_segments ? a.k_segments + b * a.keys : nullptr,
            .q_segments = a.q_segments ? a.q_segments + b * a.queries : nullptr,
            .bias = a.bias ? a.bias + first_head * (a.queries + a.keys - 1) : nullptr,
            .dropout = a.dropout,
            .sequence_offset = a.sequence_offset + b,
            .head_offset = a.head_offset + first_head,
            .heads_total = a.heads_total};
  }
};

template <class T>
void forward(cpu::Stream& stream, const AttentionArgs<T>& a) {
  parallel_tasks(stream, a.batch * a.kv_heads, [&](std::int64_t task) {
    const Group<T> g(a, task);
    float *q = scratch<float, 11>(a.queries * g.width),
          *kv = scratch<float, 12>(a.keys * g.kv_width),
          *out = scratch<float, 13>(a.queries * g.width);
    cpu::Stream here{1};
    attention(here, g.copy(q, kv, out));
    for (std::int64_t t = 0; t < a.queries; ++t)
      convert_row(out + t * g.width, a.out + g.out_at() + t * a.out_stride, g.width);
  });
}

template <class T>
void backward(cpu::Stream& stream, const AttentionBackwardArgs<T>& args) {
  const AttentionArgs<T>& a = args.forward;
  parallel_tasks(stream, a.batch * a.kv_heads, [&](std::int64_t task) {
    const Group<T> g(a, task);
    const std::int64_t queries = a.queries * g.width, keys = a.keys * g.kv_width, D = a.head_size;
    float *q = scratch<float, 11>(4 * queries), *out = q + queries, *dout = out + queries,
          *dq = dout + queries;
    float *kv = scratch<float, 12>(2 * keys), *dkv = kv + keys;
    AttentionBackwardArgs<float> f{
        .forward = g.copy(q, kv, out), .dout = dout, .dq = dq, .dk = dkv, .dv = dkv + D};
    if (args.dbias)
      f.dbias = args.dbias + (g.b * a.heads + g.first_head) * (a.queries + a.keys - 1);
    for (std::int64_t t = 0; t < a.queries; ++t) {
      convert_row(a.out + g.out_at() + t * a.out_stride, out + t * g.width, g.width);
      convert_row(args.dout + g.out_at() + t * a.out_stride, dout + t * g.width, g.width);
    }
    cpu::Stream here{1};
    attention_backward(here, f);
    for (std::int64_t t = 0; t < a.queries; ++t)
      convert_row(dq + t * g.width, args.dq + g.q_at() + t * a.q_stride, g.width);
    for (std::int64_t s = 0; s < a.keys; ++s) {
      convert_row(dkv + s * g.kv_width, args.dk + g.kv_at() + s * a.kv_stride, D);
      convert_row(dkv + s * g.kv_width + D, args.dv + g.kv_at() + s * a.kv_stride, D);
    }
  });
}

}  // namespace

#define TFM_SPECIALIZE(T)                                                           \
  template <>                                                                       \
  void attention(cpu::Stream& stream, const AttentionArgs<T>& a) {                  \
    forward(stream, a);                                                             \
  }                                                                                 \
  template <>                                                                       \
  void attention_backward(cpu::Stream& stream, const AttentionBackwardArgs<T>& a) { \
    backward(stream, a);                                                            \
  }
TFM_SPECIALIZE(bf16)
TFM_SPECIALIZE(f16)

}  // namespace tfm::kernels
