#include "ops/attention.h"

#include <algorithm>

#include "ops/table.h"

namespace tfm::ops {
namespace {

void check(const graph::Recorder& r, const AttentionInputs& in, const AttentionOptions& o) {
  const Shape q = r.info(in.q).shape, kv = r.info(in.kv ? in.kv : in.q).shape;
  const std::int64_t distances = o.queries + o.keys - 1;
  TFM_CHECK(!o.values_are_keys, "gradients of keys and values are apart");
  TFM_CHECK(o.queries > 0 && o.keys > 0 && (in.kv || o.keys == o.queries),
            "self-attention has as many keys as queries");
  TFM_CHECK(o.queries + o.keys < Visibility::kUnlimited / 2, "sequences are too long");
  TFM_CHECK(q[1] == o.q_width() + (in.kv ? 0 : o.kv_width()), "queries are " + q.str());
  TFM_CHECK(kv[1] == o.kv_width() + (in.kv ? 0 : o.q_width()), "keys and values are " + kv.str());
  const std::int64_t batch = q[0] * o.share.ranks / o.queries;
  const Rows queries{batch, o.queries, o.share}, keys{batch, o.keys, o.share};
  TFM_CHECK(q[0] == queries.tokens() && kv[0] == keys.tokens(),
            "attention needs whole sequences, as many of keys as of queries");
  TFM_CHECK(!in.q_segments || in.k_segments, "segments of queries need those of keys");
  for (const auto& [segments, rows] :
       {std::pair{in.q_segments, batch * o.queries}, {in.k_segments, batch * o.keys}})
    TFM_CHECK(!segments ||
                  (r.info(segments).shape == Shape{rows} && r.info(segments).dtype == DType::i32),
              "one int32 segment a row");
  TFM_CHECK(!in.prefixes || (r.info(in.prefixes).shape == Shape{batch} && !o.visible.beyond.any()),
            "one prefix a sequence, and no other landmarks");
  TFM_CHECK(!in.sinks || r.info(in.sinks).shape == Shape{o.heads}, "one sink a head");
  TFM_CHECK(!in.relative_bias || o.alibi_slopes.empty(), "one kind of bias");
  TFM_CHECK(o.alibi_slopes.empty() || std::ssize(o.alibi_slopes) == o.heads, "one slope a head");
  if (!in.relative_bias) return;
  const Shape table = r.info(in.relative_bias).shape;
  TFM_CHECK(table[0] == o.heads && std::ssize(o.buckets) == distances,
            "relative_bias is " + table.str());
  TFM_CHECK(std::ranges::all_of(o.buckets, [&](std::int32_t b) { return b >= 0 && b < table[1]; }),
            "buckets of the table");
}

}  // namespace

template <class T>
std::int64_t Attention<T>::scratch_of(graph::Phase phase, const Block& of,
                                      const Visibility& by_index) const {
  const bool learned = inputs.contains(relative_bias);
  const kernels::AttentionExtents a{
      .batch = batch,
      .heads = options.heads,
      .kv_heads = options.kv_heads,
      .queries = of.queries,
      .keys = of.keys,
      .head_size = options.head_size,
      .visible = by_index,
      .segments = inputs.contains(k_segments),
      .bias = learned || inputs.contains(alibi),
      .bias_gradient = learned,
      .dropout = options.dropout > 0,
      .softcap = options.softcap > 0,
      .prefixes = inputs.contains(prefixes),
      .lengths = options.right_padded && !inputs.contains(q_segments)};
  return phase == graph::Phase::backward
             ? kernels::attention_backward_scratch(a, sizeof(T), sizeof(Accum<T>))
             : kernels::attention_scratch(a, sizeof(T));
}

template <class T>
kernels::AttentionArgs<T> Attention<T>::args(const graph::Exec& e, const Block& of) const {
  const T* const queries = e.in(q).template ptr<T>();
  const T* const keys = self() ? queries + q_width() : e.in(kv).template ptr<T>();
  return {.batch = batch,
          .heads = options.heads,
          .kv_heads = options.kv_heads,
          .queries = of.queries,
          .keys = of.keys,
          .head_size = options.head_size,
          .q = queries,
          .k = keys,
          .v = keys + kv_width() / 2,
          .q_stride = q_width() + (self() ? kv_width() : 0),
          .kv_stride = kv_width() + (self() ? q_width() : 0),
          .out = e.out(y).template ptr<T>(),
          .out_stride = q_width(),
          .lse = e.out(lse).template ptr<Accum<T>>(),
          .scale = static_cast<Accum<T>>(options.scale),
          .softcap = static_cast<Accum<T>>(options.softcap),
          .visible = options.visible,
          .prefixes = e.in(prefixes).template ptr<std::int32_t>(),
          .k_segments = e.in(k_segments).template ptr<std::int32_t>(),
          .q_segments = e.in(q_segments).template ptr<std::int32_t>(),
          .right_padded = options.right_padded,
          .bias = bias(e, of),
          .dropout = {static_cast<float>(options.dropout),
                      {e.state().seed, Purpose::dropout, stream},
                      e.numbers()},
          .head_offset = options.head_offset,
          .heads_total = options.heads_total,
          .query_offset = of.first_query,
          .queries_total = options.queries,
          .key_offset = of.first_key,
          .keys_total = options.keys};
}

template struct Attention<float>;
template struct Attention<double>;
template struct Attention<bf16>;
template struct Attention<f16>;

graph::Work attention_work(const AttentionOptions& o, std::int64_t batch, int products,
                           int kernels) {
  const double of_pair = 2.0 * products * batch / o.share.ranks * o.heads * o.head_size,
               own = o.visible.right == 0 ? 0.5 * static_cast<double>(o.queries) : 0,
               pairs =
                   static_cast<double>(o.visible.pairs({o.keys - o.queries, o.keys}, {0, o.keys})),
               seen = of_pair * (pairs - own);
  return {.attention_flops = seen,
          .masked_flops = of_pair * o.queries * o.keys - seen,
          .head_size = o.head_size,
          .keys = o.keys,
          .kernels = kernels};
}

graph::Value attention(graph::Recorder& r, const AttentionInputs& in, AttentionOptions options) {
  check(r, in, options);
  options.visible = options.visible.of_length(options.keys);
  const std::int64_t N = r.info(in.q).shape[0], H = options.heads, D = options.head_size;
  return with_float(r.dtype(), [&]<class T>() {
    auto op = options.share.ranks == 1 ? std::make_unique<Attention<T>>()
              : options.ring           ? ring_attention<T>()
                                       : gather_attention<T>();
    graph::Value bucket, alibi;
    if (in.relative_bias) {
      op->buckets = r.info(in.relative_bias).shape[1];
      bucket = table(r, "buckets", options.buckets);
    }
    if (!options.alibi_slopes.empty())
      alibi = alibi_table<Accum<T>>(r, options.alibi_slopes, options.queries, options.keys);
    const std::vector<graph::Value> inputs{in.q,          in.kv,       in.q_segments,
                                           in.k_segments, in.prefixes, in.relative_bias,
                                           bucket,        alibi,       in.sinks};
    op->inputs = graph::given(inputs);
    op->batch = N * options.share.ranks / options.queries;
    if (options.dropout > 0) op->stream = r.random_stream("attention.dropout");
    op->options = std::move(options);
    return r.apply(std::move(op), inputs,
                   {{{N, H * D}, r.dtype()}, {{N, H}, accum_type(r.dtype()), false}});
  });
}

}  // namespace tfm::ops
