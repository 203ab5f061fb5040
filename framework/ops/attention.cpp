#include "kernels/attention.h"

#include <algorithm>

#include "kernels/scratch.h"
#include "ops/ops.h"
#include "ops/table.h"

namespace tfm::ops {
namespace {

template <class T>
struct Attention final : graph::Op {
  // alibi: bias by distance, (H, T + S - 1).
  enum In { q, kv, q_segments, k_segments, relative_bias, bucket, alibi };
  enum Out { y, lse };

  AttentionOptions options;
  graph::Tensors inputs;  // those present
  std::int64_t batch, buckets = 0;
  std::uint32_t stream = 0;

  std::string_view kind() const override { return "attention"; }
  graph::Saved saved() const override { return {.inputs = inputs, .outputs = {y, lse}}; }
  // Scores and weighted sum, 2 * 2 * T * S * D for every head; backward recomputes the scores and
  // has four products of its own.
  graph::Work work(graph::Phase phase) const override {
    const double all = 4.0 * batch * options.queries * options.keys * options.heads *
                       options.head_size * (phase == graph::Phase::backward ? 2.5 : 1);
    const double seen = options.causal ? all / 2 : all;
    return {.attention_flops = seen,
            .masked_flops = all - seen,
            .kernels = phase == graph::Phase::backward ? 3 : 1};
  }
  // A relative bias by distance; in backward its gradient in every sequence follows.
  std::int64_t workspace_bytes(graph::Phase phase) const override {
    if (!inputs.contains(relative_bias)) return 0;
    return options.heads * distances() * (phase == graph::Phase::backward ? 1 + batch : 1) *
           static_cast<std::int64_t>(sizeof(Accum<T>));
  }

  std::int64_t scratch_bytes(graph::Phase phase, DType) const override {
    const kernels::AttentionExtents a{batch,
                                      options.heads,
                                      options.kv_heads,
                                      options.queries,
                                      options.keys,
                                      options.head_size,
                                      options.causal,
                                      inputs.contains(k_segments),
                                      inputs.contains(relative_bias) || inputs.contains(alibi),
                                      inputs.contains(relative_bias),
                                      options.dropout > 0};
    return phase == graph::Phase::backward
               ? kernels::attention_backward_scratch(a, sizeof(T), sizeof(Accum<T>))
               : kernels::attention_scratch(a, sizeof(T));
  }

  bool self() const { return !inputs.contains(kv); }  // queries, keys and values in one row
  std::int64_t distances() const { return options.queries + options.keys - 1; }
  Accum<T>* table(const graph::Exec& e) const { return reinterpret_cast<Accum<T>*>(e.workspace()); }
  const Accum<T>* bias(const graph::Exec& e) const {
    return inputs.contains(relative_bias) ? table(e) : e.in(alibi).template ptr<Accum<T>>();
  }
  void expand_bias(const graph::Exec& e) const {
    if (!inputs.contains(relative_bias)) return;
    device::on(e.stream(), [&](auto& s) {
      kernels::bucket_bias(
          s, kernels::BucketBiasArgs<T>{options.heads, distances(), buckets,
                                        e.in(bucket).template ptr<std::int32_t>(),
                                        e.in(relative_bias).template ptr<T>(), table(e)});
    });
  }

  kernels::AttentionArgs<T> args(const graph::Exec& e) const {
    const std::int64_t D = options.head_size, q_width = options.heads * D,
                       kv_width = options.kv_heads * D;
    const T* const queries = e.in(q).template ptr<T>();
    const T* const keys = self() ? queries + q_width : e.in(kv).template ptr<T>();
    return {.batch = batch,
            .heads = options.heads,
            .kv_heads = options.kv_heads,
            .queries = options.queries,
            .keys = options.keys,
            .head_size = D,
            .q = queries,
            .k = keys,
            .v = keys + kv_width,
            .q_stride = q_width + (self() ? 2 * kv_width : 0),
            .kv_stride = 2 * kv_width + (self() ? q_width : 0),
            .out = e.out(y).template ptr<T>(),
            .out_stride = q_width,
            .lse = e.out(lse).template ptr<Accum<T>>(),
            .scale = static_cast<Accum<T>>(options.scale),
            .causal = options.causal,
            .k_segments = e.in(k_segments).template ptr<std::int32_t>(),
            .q_segments = e.in(q_segments).template ptr<std::int32_t>(),
            .bias = bias(e),
            .dropout = {static_cast<float>(options.dropout),
                        {e.state().seed, Purpose::dropout, stream},
                        e.numbers()},
            .head_offset = options.head_offset,
            .heads_total = options.heads_total};
  }
  void forward(graph::Exec& e) const override {
    expand_bias(e);
    device::on(e.stream(), [&](auto& s) { kernels::attention(s, args(e)); });
  }
  void backward(graph::Exec& e) const override {
    const graph::GradSlot dq = e.grad_in(q), dkv = self() ? dq : e.grad_in(kv),
                          dtable = e.grad_in(relative_bias);
    TFM_CHECK(dq && dkv && !dq.accumulate && !dkv.accumulate,
              "the gradients of queries, keys and values have one writer");
    const std::int64_t D = options.head_size;
    T* dk = dkv.tensor.ptr<T>() + (self() ? options.heads * D : 0);
    Accum<T>* dbias = dtable ? table(e) + options.heads * distances() : nullptr;
    expand_bias(e);
    device::on(e.stream(), [&](auto& s) {
      kernels::attention_backward(s, kernels::AttentionBackwardArgs<T>{
                                         args(e), e.grad_out(y).template ptr<T>(),
                                         dq.tensor.ptr<T>(), dk, dk + options.kv_heads * D, dbias});
      if (dtable)
        kernels::bucket_bias_backward(s, kernels::BucketBiasBackwardArgs<T>{
                                             batch, options.heads, distances(), buckets,
                                             e.in(bucket).template ptr<std::int32_t>(), dbias,
                                             dtable.tensor.ptr<Accum<T>>(), dtable.accumulate});
    });
  }
};

void check(const graph::Recorder& r, const AttentionInputs& in, const AttentionOptions& o) {
  const Shape q = r.info(in.q).shape, kv = r.info(in.kv ? in.kv : in.q).shape;
  const std::int64_t q_width = o.heads * o.head_size, kv_width = 2 * o.kv_heads * o.head_size,
                     distances = o.queries + o.keys - 1;
  TFM_CHECK(o.queries > 0 && o.keys > 0 && (in.kv || o.keys == o.queries),
            "self-attention has as many keys as queries");
  TFM_CHECK(q[1] == q_width + (in.kv ? 0 : kv_width), "queries are " + q.str());
  TFM_CHECK(kv[1] == kv_width + (in.kv ? 0 : q_width), "keys and values are " + kv.str());
  TFM_CHECK(q[0] % o.queries == 0 && q[0] / o.queries * o.keys == kv[0],
            "attention needs whole sequences, as many of keys as of queries");
  TFM_CHECK(!in.q_segments || in.k_segments, "segments of queries need those of keys");
  for (const auto& [segments, rows] : {std::pair{in.q_segments, q[0]}, {in.k_segments, kv[0]}})
    TFM_CHECK(!segments ||
                  (r.info(segments).shape == Shape{rows} && r.info(segments).dtype == DType::i32),
              "one int32 segment a row");
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

graph::Value attention(graph::Recorder& r, const AttentionInputs& in, AttentionOptions options) {
  check(r, in, options);
  const std::int64_t N = r.info(in.q).shape[0], H = options.heads, D = options.head_size;
  return with_float(r.dtype(), [&]<class T>() {
    auto op = std::make_unique<Attention<T>>();
    graph::Value bucket, alibi;
    if (in.relative_bias) {
      op->buckets = r.info(in.relative_bias).shape[1];
      bucket = table(r, "buckets", options.buckets);
    }
    if (!options.alibi_slopes.empty())
      alibi = alibi_table<Accum<T>>(r, options.alibi_slopes, options.queries, options.keys);
    const std::vector<graph::Value> inputs{
        in.q, in.kv, in.q_segments, in.k_segments, in.relative_bias, bucket, alibi};
    op->inputs = graph::given(inputs);
    op->batch = N / options.queries;
    if (options.dropout > 0) op->stream = r.random_stream("attention.dropout");
    op->options = std::move(options);
    return r.apply(std::move(op), inputs,
                   {{{N, H * D}, r.dtype()}, {{N, H}, accum_type(r.dtype()), false}});
  });
}

}  // namespace tfm::ops
