#pragma once
// Attention to keys that this rank holds. Attention to keys of several ranks is derived from it.
#include "kernels/attention_sinks.h"
#include "kernels/elementwise.h"
#include "kernels/scratch.h"
#include "ops/ops.h"

namespace tfm::ops {

// Work of a pass with so many products, each of 2 D flops per head and pair of a query and a key
// that it sees. A causal query's own key counts by half, so that the whole is a half, as usual
// (Dao et al. 2022).
graph::Work attention_work(const AttentionOptions& o, std::int64_t batch, int products,
                           int kernels);

template <class T>
struct Attention : graph::Op {
  // alibi: bias by distance, (H, T + S - 1), see ops/table.h.
  enum In { q, kv, q_segments, k_segments, prefixes, relative_bias, bucket, alibi, sinks };
  enum Out { y, lse };
  // A range of queries against a range of keys, in every sequence.
  struct Block {
    std::int64_t first_query, queries, first_key, keys;
  };

  AttentionOptions options;
  graph::OperandSet inputs;  // the inputs that are present
  std::int64_t batch, buckets = 0;
  std::uint32_t stream = 0;

  std::string_view kind() const override { return "attention"; }
  graph::Saved saved() const override { return {.inputs = inputs, .outputs = {y, lse}}; }
  // Backward has five products: the recomputed scores and four of its own.
  graph::Work work(graph::Phase phase) const override {
    AttentionOptions o = options;
    if (inputs.contains(prefixes)) o.visible.beyond.prefix = o.keys / 2;  // a usual one
    return phase == graph::Phase::backward ? attention_work(o, batch, 5, 3)
                                           : attention_work(o, batch, 2, 1);
  }
  std::int64_t workspace_bytes(graph::Phase phase) const override {
    return bias_bytes(phase, all());
  }
  std::int64_t scratch_bytes(graph::Phase phase, DType) const override {
    return scratch_of(phase, all(), visible(all()));
  }

  void forward(graph::Exec& e) const override {
    expand_bias(e, all());
    device::on(e.stream(), [&](auto& s) { kernels::attention(s, args(e, all())); });
    add_sinks(e, args(e, all()));
  }
  void backward(graph::Exec& e) const override {
    const graph::GradSlot dq = e.grad_in(q), dkv = self() ? dq : e.grad_in(kv);
    TFM_CHECK(dq && dkv && !dq.accumulate && !dkv.accumulate,
              "the gradients of queries, keys and values have one writer");
    sinks_gradient(e, args(e, all()), e.grad_out(y).template ptr<T>(), false);
    backward(e, all(), args(e, all()), e.grad_out(y).template ptr<T>(), dq.tensor.template ptr<T>(),
             dkv.tensor.template ptr<T>() + (self() ? q_width() : 0), false);
  }

 protected:
  bool self() const { return !inputs.contains(kv); }  // q holds queries, keys and values
  std::int64_t q_width() const { return options.q_width(); }
  std::int64_t kv_width() const { return options.kv_width(); }
  Block all() const { return {0, options.queries, 0, options.keys}; }
  // Visibility by index in the block, with the longest prefix.
  Visibility visible(const Block& of) const {
    Visibility v = options.visible;
    if (inputs.contains(prefixes)) v.beyond.prefix = options.keys;
    return v.from(of.first_query + options.keys - options.queries, of.first_key);
  }
  static std::int64_t distances(const Block& of) { return of.queries + of.keys - 1; }

  // Bytes of a bias by distance, followed in backward by its gradient for every sequence.
  std::int64_t bias_bytes(graph::Phase phase, const Block& of) const {
    const bool learned = inputs.contains(relative_bias);
    if (!learned && (!inputs.contains(alibi) || distances(of) == distances(all()))) return 0;
    return options.heads * distances(of) *
           (learned && phase == graph::Phase::backward ? 1 + batch : 1) *
           static_cast<std::int64_t>(sizeof(Accum<T>));
  }
  std::int64_t scratch_of(graph::Phase phase, const Block& of, const Visibility& by_index) const;

  Accum<T>* table(const graph::Exec& e) const { return reinterpret_cast<Accum<T>*>(e.workspace()); }
  const Accum<T>* bias(const graph::Exec& e, const Block& of) const {
    return bias_bytes(graph::Phase::forward, of) > 0 ? table(e)
                                                     : e.in(alibi).template ptr<Accum<T>>();
  }
  // Index of the first distance of the block among the distances of all queries and keys.
  std::int64_t first_distance(const Block& of) const {
    return of.first_key + options.queries - of.first_query - of.queries;
  }
  void expand_bias(const graph::Exec& e, const Block& of) const {
    const std::int64_t used = distances(of), first = first_distance(of);
    device::on(e.stream(), [&](auto& s) {
      if (inputs.contains(relative_bias))
        kernels::bucket_bias(
            s, kernels::BucketBiasArgs<T>{options.heads, used, buckets,
                                          e.in(bucket).template ptr<std::int32_t>() + first,
                                          e.in(relative_bias).template ptr<T>(), table(e)});
      else if (bias_bytes(graph::Phase::forward, of) > 0)
        kernels::copy_rows(s, kernels::CopyRowsArgs<Accum<T>>{
                                  options.heads, used, e.in(alibi).template ptr<Accum<T>>() + first,
                                  distances(all()), table(e), used});
    });
  }

  kernels::AttentionArgs<T> args(const graph::Exec& e, const Block& of) const;
  // Sinks are added to attention to all keys. `more`: gradients of parameters are added to.
  void add_sinks(const graph::Exec& e, const kernels::AttentionArgs<T>& a) const {
    const T* const x = e.in(sinks).template ptr<T>();
    if (x) device::on(e.stream(), [&](auto& s) { attention_sinks(s, kernels::sinks_of(a, x)); });
  }
  void sinks_gradient(graph::Exec& e, const kernels::AttentionArgs<T>& a, const T* dy,
                      bool more) const {
    if (const graph::GradSlot d = e.grad_in(sinks))
      device::on(e.stream(), [&](auto& s) {
        const auto forward = kernels::sinks_of(a, e.in(sinks).template ptr<T>());
        kernels::attention_sinks_backward(
            s, kernels::AttentionSinksBackwardArgs<T>{
                   forward, dy, d.tensor.template ptr<Accum<T>>(), more || d.accumulate});
      });
  }
  void backward(graph::Exec& e, const Block& of, const kernels::AttentionArgs<T>& forward,
                const T* dy, T* dq, T* dk, bool more) const {
    const graph::GradSlot dtable = e.grad_in(relative_bias);
    const std::int64_t used = distances(of);
    Accum<T>* dbias = dtable ? table(e) + options.heads * used : nullptr;
    expand_bias(e, of);
    device::on(e.stream(), [&](auto& s) {
      kernels::attention_backward(
          s, kernels::AttentionBackwardArgs<T>{forward, dy, dq, dk, dk + kv_width() / 2, dbias});
      if (dtable)
        kernels::bucket_bias_backward(
            s, kernels::BucketBiasBackwardArgs<T>{
                   batch, options.heads, used, buckets,
                   e.in(bucket).template ptr<std::int32_t>() + first_distance(of), dbias,
                   dtable.tensor.template ptr<Accum<T>>(), more || dtable.accumulate});
    });
  }
};

// Attention under context parallelism without and with AttentionOptions::ring; see
// context_attention.h.
template <class T>
std::unique_ptr<Attention<T>> gather_attention();
template <class T>
std::unique_ptr<Attention<T>> ring_attention();

}  // namespace tfm::ops
