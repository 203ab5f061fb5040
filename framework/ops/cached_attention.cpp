#include "ops/attention.h"
#include "ops/table.h"

namespace tfm::ops {
namespace {

template <class T>
struct CachedAttention final : graph::Op {
  // alibi: bias by distance, (H, T + capacity - 1)
  enum In { qkv, cache, relative_bias, bucket, alibi, sinks };
  enum Out { y };

  AttentionOptions options;
  std::int64_t batch, buckets = 0;

  std::string_view kind() const override { return "cached_attention"; }
  graph::Saved saved() const override { return {}; }
  std::int64_t distances() const { return options.queries + options.keys - 1; }
  graph::Work work(graph::Phase) const override { return attention_work(options, batch, 2, 1); }
  std::int64_t workspace_bytes(graph::Phase) const override {  // log-sum-exp; bias by distance
    return options.heads * (batch * options.queries + distances()) *
           static_cast<std::int64_t>(sizeof(Accum<T>));
  }

  void forward(graph::Exec& e) const override {
    const std::int64_t q_width = options.q_width(), kv_width = options.kv_width();
    const std::int64_t position = e.state().first_position, capacity = options.keys,
                       queries = options.queries, keys = position + queries;
    const std::int64_t used = queries + keys - 1, row = q_width + kv_width;
    TFM_CHECK(keys <= capacity, "the cache holds " + std::to_string(capacity) + " positions");
    const T* const fresh = e.in(qkv).template ptr<T>();
    T* const held = e.in(cache).template ptr<T>();
    Accum<T>*lse = reinterpret_cast<Accum<T>*>(e.workspace()),
    *bias = lse + options.heads * batch * queries;
    device::on(e.stream(), [&](auto& s) {
      if (queries == 1)
        kernels::copy_rows(
            s, kernels::CopyRowsArgs<T>{batch, kv_width, fresh + q_width, row,
                                        held + position * kv_width, capacity * kv_width});
      for (std::int64_t b = 0; b < batch && queries > 1; ++b)
        kernels::copy_rows(
            s, kernels::CopyRowsArgs<T>{queries, kv_width, fresh + b * queries * row + q_width, row,
                                        held + (b * capacity + position) * kv_width, kv_width});
      if (buckets > 0)
        kernels::bucket_bias(s, kernels::BucketBiasArgs<T>{
                                    options.heads, used, buckets,
                                    e.in(bucket).template ptr<std::int32_t>() + capacity - keys,
                                    e.in(relative_bias).template ptr<T>(), bias});
      if (e.in(alibi))
        kernels::copy_rows(
            s, kernels::CopyRowsArgs<Accum<T>>{
                   options.heads, used, e.in(alibi).template ptr<Accum<T>>() + capacity - keys,
                   distances(), bias, used});
      const kernels::AttentionArgs<T> a{.batch = batch,
                                        .heads = options.heads,
                                        .kv_heads = options.kv_heads,
                                        .queries = queries,
                                        .keys = keys,
                                        .head_size = options.head_size,
                                        .q = fresh,
                                        .k = held,
                                        .v = options.values_are_keys ? held : held + kv_width / 2,
                                        .q_stride = row,
                                        .kv_stride = kv_width,
                                        .out = e.out(y).template ptr<T>(),
                                        .out_stride = q_width,
                                        .lse = lse,
                                        .scale = static_cast<Accum<T>>(options.scale),
                                        .softcap = static_cast<Accum<T>>(options.softcap),
                                        .visible = options.visible,
                                        .bias = buckets > 0 || e.in(alibi) ? bias : nullptr,
                                        .kv_length = capacity};
      kernels::attention(s, a);
      if (const T* of_heads = e.in(sinks).template ptr<T>())
        kernels::attention_sinks(s, kernels::sinks_of(a, of_heads));
    });
  }
  void backward(graph::Exec&) const override {
    internal_error("attention to a cache has no backward pass");
  }
};

}  // namespace

graph::Value cached_attention(graph::Recorder& r, graph::Value qkv, graph::Value cache,
                              graph::Value relative_bias, graph::Value sinks,
                              AttentionOptions options) {
  const Shape in = r.info(qkv).shape, held = r.info(cache).shape;
  const std::int64_t q_width = options.q_width(), kv_width = options.kv_width();
  const std::int64_t batch = div_exact(in[0], options.queries);
  TFM_CHECK(options.visible.right == 0, "new tokens follow others");
  TFM_CHECK(in[1] == q_width + kv_width, "queries, keys and values are " + in.str());
  TFM_CHECK(
      held == (Shape{batch * options.keys, kv_width}) && r.info(cache).role == graph::Role::input,
      "the cache is " + held.str());
  return with_float(r.dtype(), [&]<class T>() {
    auto op = std::make_unique<CachedAttention<T>>();
    op->batch = batch;
    graph::Value bucket, alibi;
    if (relative_bias) {
      op->buckets = r.info(relative_bias).shape[1];
      TFM_CHECK(std::ssize(options.buckets) == options.queries + options.keys - 1,
                "a bucket for each distance");
      bucket = table(r, "buckets", options.buckets);
    }
    if (!options.alibi_slopes.empty())
      alibi = alibi_table<Accum<T>>(r, options.alibi_slopes, options.queries, options.keys);
    op->options = std::move(options);
    return r.apply(std::move(op), {qkv, cache, relative_bias, bucket, alibi, sinks},
                   {{{in[0], q_width}, r.dtype()}});
  });
}

}  // namespace tfm::ops
