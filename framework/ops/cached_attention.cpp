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
    const std::int64_t first = e.state().first_position, end = first + options.queries;
    TFM_CHECK(recent() > 0 || end <= options.keys,
              "the cache holds " + std::to_string(options.keys) + " positions");
    device::on(e.stream(), [&](auto& s) {
      for (std::int64_t at = first, next = end; at < end; at = next) {
        const std::int64_t base = first_held(at);
        if (base > 0 && at == base + kept()) drop_oldest(s, e);
        next = std::min(end, base + options.keys);
        attend(s, e, {at - first, next - first}, at - base);
      }
    });
  }
  void backward(graph::Exec&) const override {
    internal_error("attention to a cache has no backward pass");
  }

 private:
  // The number of positions that a query looks at, if the cache has room for twice as many alone.
  std::int64_t recent() const {
    const std::int64_t n = options.visible.recent();
    return options.keys == 2 * n ? n : 0;
  }
  // When such a cache is full it drops all but those that the next query looks at.
  std::int64_t kept() const { return recent() - 1; }
  std::int64_t dropped() const { return options.keys - kept(); }
  // The position of the first row that is held when that of position `at` is written.
  std::int64_t first_held(std::int64_t at) const {
    return recent() > 0 && at > kept() ? (at - kept()) / dropped() * dropped() : 0;
  }
  void drop_oldest(auto& s, graph::Exec& e) const {
    const std::int64_t width = options.kv_width(), stride = options.keys * width;
    T* const held = e.in(cache).template ptr<T>();
    if (kept() > 0)
      kernels::copy_rows(
          s, kernels::CopyRowsArgs<T>{batch, kept() * width, held + dropped() * width, stride, held,
                                      stride});
  }
  // The part of the new tokens looks at itself and at so many rows that each sequence holds.
  void attend(auto& s, graph::Exec& e, Span<std::int64_t> part, std::int64_t before) const {
    const std::int64_t q_width = options.q_width(), kv_width = options.kv_width(),
                       capacity = options.keys, row = q_width + kv_width, queries = part.size(),
                       keys = before + queries, used = queries + keys - 1;
    const T* const fresh = e.in(qkv).template ptr<T>() + part.begin * row;
    T *const held = e.in(cache).template ptr<T>(),
             *out = e.out(y).template ptr<T>() + part.begin * q_width;
    Accum<T>*lse = reinterpret_cast<Accum<T>*>(e.workspace()),
    *bias = lse + options.heads * batch * options.queries;
    if (options.queries == 1)
      kernels::copy_rows(s,
                         kernels::CopyRowsArgs<T>{batch, kv_width, fresh + q_width, row,
                                                  held + before * kv_width, capacity * kv_width});
    for (std::int64_t b = 0; b < batch && options.queries > 1; ++b)
      kernels::copy_rows(s, kernels::CopyRowsArgs<T>{
                                queries, kv_width, fresh + b * options.queries * row + q_width, row,
                                held + (b * capacity + before) * kv_width, kv_width});
    if (buckets > 0)
      kernels::bucket_bias(
          s, kernels::BucketBiasArgs<T>{options.heads, used, buckets,
                                        e.in(bucket).template ptr<std::int32_t>() + capacity - keys,
                                        e.in(relative_bias).template ptr<T>(), bias});
    if (e.in(alibi))
      kernels::copy_rows(
          s, kernels::CopyRowsArgs<Accum<T>>{options.heads, used,
                                             e.in(alibi).template ptr<Accum<T>>() + capacity - keys,
                                             distances(), bias, used});
    // Rows of a part of the queries are not those of all sequences side by side.
    const std::int64_t together = queries == options.queries ? batch : 1;
    for (std::int64_t b = 0; b < batch; b += together) {
      const kernels::AttentionArgs<T> a{
          .batch = together,
          .heads = options.heads,
          .kv_heads = options.kv_heads,
          .queries = queries,
          .keys = keys,
          .head_size = options.head_size,
          .q = fresh + b * options.queries * row,
          .k = held + b * capacity * kv_width,
          .v = held + b * capacity * kv_width + (options.values_are_keys ? 0 : kv_width / 2),
          .q_stride = row,
          .kv_stride = kv_width,
          .out = out + b * options.queries * q_width,
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
    }
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
