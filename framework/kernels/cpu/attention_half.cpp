// 16-bit queries, keys and values: the heads of one group of one sequence at a time, in float where
// the processor does not multiply them.
#include "kernels/cpu/attention_group.h"
#include "kernels/cpu/half_gemm.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_half.h"

namespace tfm::kernels {
namespace {

// On copies: queries and output (queries, G D), keys and values (keys, 2 D).
template <class T>
AttentionArgs<float> copy(const Group<T>& g, float* q, float* kv, float* out) {
  const AttentionArgs<T>& a = g.a;
  const std::int64_t D = a.head_size, kv_width = 2 * D;
  for (std::int64_t t = 0; t < a.queries; ++t)
    convert_row(a.q + g.q_at() + t * a.q_stride, q + t * g.width, g.width);
  for (std::int64_t s = 0; s < a.keys; ++s) {
    convert_row(a.k + g.kv_at() + s * a.kv_stride, kv + s * kv_width, D);
    convert_row(a.v + g.kv_at() + s * a.kv_stride, kv + s * kv_width + D, D);
  }
  AttentionArgs<float> f = g.options();
  f.q = q, f.k = kv, f.v = kv + D, f.q_stride = g.width, f.kv_stride = kv_width;
  f.out = out, f.out_stride = g.width;
  return f;
}

bool computes_natively(const AttentionArgs<bf16>& a) {
  return multiplies_natively<bf16>() && a.head_size % 2 == 0;
}

template <class T>
void forward(cpu::Stream& stream, const AttentionArgs<T>& a) {
  parallel_tasks(stream, a.batch * a.kv_heads, [&](std::int64_t task) {
    const Group<T> g(a, task);
    if constexpr (std::is_same_v<T, bf16>)
      if (computes_natively(a)) return attention_group(g);
    float *q = scratch<float, struct Queries>(a.queries * g.width),
          *kv = scratch<float, struct Keys>(a.keys * 2 * a.head_size),
          *out = scratch<float, struct Output>(a.queries * g.width);
    cpu::Stream here{1};
    attention(here, copy(g, q, kv, out));
    for (std::int64_t t = 0; t < a.queries; ++t)
      convert_row(out + t * g.width, a.out + g.out_at() + t * a.out_stride, g.width);
  });
}

template <class T>
void backward(cpu::Stream& stream, const AttentionBackwardArgs<T>& args) {
  const AttentionArgs<T>& a = args.forward;
  parallel_tasks(stream, a.batch * a.kv_heads, [&](std::int64_t task) {
    const Group<T> g(a, task);
    if constexpr (std::is_same_v<T, bf16>)
      if (computes_natively(a)) return attention_group_backward(g, args);
    const std::int64_t D = a.head_size, kv_width = 2 * D, queries = a.queries * g.width,
                       keys = a.keys * kv_width;
    float *q = scratch<float, struct Queries>(4 * queries), *out = q + queries,
          *dout = out + queries, *dq = dout + queries;
    float *kv = scratch<float, struct Keys>(2 * keys), *dkv = kv + keys;
    AttentionBackwardArgs<float> f{
        .forward = copy(g, q, kv, out), .dout = dout, .dq = dq, .dk = dkv, .dv = dkv + D};
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
      convert_row(dkv + s * kv_width, args.dk + g.kv_at() + s * a.kv_stride, D);
      convert_row(dkv + s * kv_width + D, args.dv + g.kv_at() + s * a.kv_stride, D);
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
