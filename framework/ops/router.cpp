#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/scratch.h"
#include "ops/experts.h"

namespace tfm::ops {
namespace {

// No other op that wants a gradient may read its result.
struct RouterLogits final : graph::Op {
  enum In { x, weight, bias };
  enum Out { logits };

  std::int64_t rows, cols, experts;
  bool biased;

  std::string_view kind() const override { return "router_logits"; }
  graph::Saved saved() const override { return {.inputs = {x, weight}}; }
  graph::Work work(graph::Phase phase) const override {
    if (phase != graph::Phase::backward)
      return {.products = {{rows, experts, cols}}, .kernels = biased ? 3 : 1};
    return {.products = {{rows, cols, experts}, {.m = experts, .n = cols, .k = rows, .sum = true}},
            .kernels = biased ? 4 : 3};
  }
  // Forward adds the bias in the type of the logits; backward multiplies by their gradient in that
  // of the recording.
  std::int64_t workspace_bytes(graph::Phase phase) const override {
    const std::int64_t of_rows = phase == graph::Phase::backward ? rows : biased;
    return of_rows * experts * std::int64_t{sizeof(double)};
  }
  std::int64_t scratch_bytes(graph::Phase phase, DType dtype) const override {
    return biased && phase == graph::Phase::backward
               ? kernels::column_sum_scratch(rows, experts, size_of(accum_type(dtype)))
               : 0;
  }
  void forward(graph::Exec& e) const override {
    with_float(e.in(x).dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) {
        kernels::gemm(s, kernels::GemmArgs<T, Accum<T>>{.transpose_b = true,
                                                        .m = rows,
                                                        .n = experts,
                                                        .k = cols,
                                                        .a = e.in(x).ptr<T>(),
                                                        .lda = cols,
                                                        .b = e.in(weight).ptr<T>(),
                                                        .ldb = cols,
                                                        .c = e.out(logits).ptr<Accum<T>>(),
                                                        .ldc = experts});
        if (!biased) return;
        auto* const wide = reinterpret_cast<Accum<T>*>(e.workspace());
        kernels::convert_rows(s, kernels::ConvertRowsArgs<T, Accum<T>>{
                                     1, experts, e.in(bias).ptr<T>(), experts, wide, experts});
        kernels::add_bias(
            s, kernels::AddBiasArgs<Accum<T>>{rows, experts, wide, e.out(logits).ptr<Accum<T>>()});
      });
    });
  }
  void backward(graph::Exec& e) const override {
    with_float(e.in(x).dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) {
        T* const d = reinterpret_cast<T*>(e.workspace());
        kernels::convert_rows(
            s, kernels::ConvertRowsArgs<Accum<T>, T>{
                   rows, experts, e.grad_out(logits).ptr<Accum<T>>(), experts, d, experts});
        if (const graph::GradSlot dx = e.grad_in(x))
          kernels::gemm(s, kernels::GemmArgs<T>{.m = rows,
                                                .n = cols,
                                                .k = experts,
                                                .a = d,
                                                .lda = experts,
                                                .b = e.in(weight).ptr<T>(),
                                                .ldb = cols,
                                                .beta = Accum<T>(dx.accumulate),
                                                .c = dx.tensor.ptr<T>(),
                                                .ldc = cols});
        if (const graph::GradSlot dw = e.grad_in(weight))
          kernels::linear_gradients(
              s, kernels::LinearGradientsArgs<T>{rows, cols, experts, 1, d, e.in(x).ptr<T>(),
                                                 dw.tensor.ptr<Accum<T>>(), dw.accumulate});
        if (const graph::GradSlot db = e.grad_in(bias))
          kernels::column_sum(s, kernels::ColumnSumArgs<Accum<T>>{
                                     rows, experts, experts, e.grad_out(logits).ptr<Accum<T>>(),
                                     db.tensor.ptr<Accum<T>>(), db.accumulate});
      });
    });
  }
};

// Ranks that share sequences add up the counts of choices.
struct Route final : graph::StagedOp {
  enum In { logits, mask, bias };
  enum Out {
    weights,
    statistics,
    counts,
    choice,
    place,
    slot,
    offsets,
    scores,
    lse,
    entropy,
    kept
  };

  kernels::RouterOptions options;
  DType dtype;
  bool biased = false;

  std::string_view kind() const override { return "route"; }
  graph::Saved saved() const override {
    return {.inputs = {logits, mask}, .outputs = {weights, counts, choice, scores, lse}};
  }
  graph::Work work(graph::Phase phase) const override {
    return {.kernels = (phase == graph::Phase::backward ? 1 : 3) + biased};
  }
  std::int64_t workspace_bytes(graph::Phase phase) const override {
    return biased && phase != graph::Phase::backward ? options.experts * size_of(accum_type(dtype))
                                                     : 0;
  }
  std::vector<comm::CollectiveCall> exchanges(graph::Phase phase) const override {
    if (options.rows.share.ranks == 1 || phase == graph::Phase::backward) return {};
    return {{comm::Collective::all_reduce_sum, comm::Axis::context,
             options.rows.sequences * options.experts * size_of(accum_type(dtype))}};
  }
  graph::Exchanged exchanged(graph::Phase, std::size_t, const graph::Exec& e) const override {
    return {e.out(counts), e.out(counts)};
  }
  void stage(graph::Phase phase, std::size_t k, graph::Exec& e) const override {
    if (k > 0) return;
    with_float(dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) {
        if (phase == graph::Phase::backward) return backward_of<Accum<T>>(s, e);
        if (biased)
          kernels::convert_rows(s,
                                kernels::ConvertRowsArgs<T, Accum<T>>{
                                    1, options.experts, e.in(bias).ptr<T>(), options.experts,
                                    reinterpret_cast<Accum<T>*>(e.workspace()), options.experts});
        forward_of<Accum<T>>(s, e);
      });
    });
  }

 private:
  template <class T, class S>
  void forward_of(S& s, graph::Exec& e) const {
    kernels::route(
        s, kernels::RouteArgs<T>{.options = options,
                                 .mask = e.in(mask).ptr<std::int32_t>(),
                                 .logits = e.in(logits).ptr<T>(),
                                 .bias = biased ? reinterpret_cast<T*>(e.workspace()) : nullptr,
                                 .scores = e.out(scores).ptr<T>(),
                                 .lse = e.out(lse).ptr<T>(),
                                 .entropy = e.out(entropy).ptr<T>(),
                                 .weights = e.out(weights).ptr<T>(),
                                 .choice = e.out(choice).ptr<std::int32_t>(),
                                 .statistics = e.out(statistics).ptr<T>(),
                                 .counts = e.out(counts).ptr<T>()});
    if (options.capacity > 0)
      kernels::limit_slots(s, kernels::LimitSlotsArgs{options, e.in(mask).ptr<std::int32_t>(),
                                                      e.out(choice).ptr<std::int32_t>(),
                                                      e.out(kept).ptr<std::int32_t>()});
    kernels::sort_slots(
        s, kernels::SortSlotsArgs{options.rows.tokens() * options.top_k, options.experts,
                                  e.out(options.capacity > 0 ? kept : choice).ptr<std::int32_t>(),
                                  e.out(place).ptr<std::int32_t>(), e.out(slot).ptr<std::int32_t>(),
                                  e.out(offsets).ptr<std::int32_t>()});
  }
  template <class T, class S>
  void backward_of(S& s, graph::Exec& e) const {
    kernels::route_backward(
        s, kernels::RouteBackwardArgs<T>{.options = options,
                                         .mask = e.in(mask).ptr<std::int32_t>(),
                                         .logits = e.in(logits).ptr<T>(),
                                         .scores = e.out(scores).ptr<T>(),
                                         .lse = e.out(lse).ptr<T>(),
                                         .weights = e.out(weights).ptr<T>(),
                                         .choice = e.out(choice).ptr<std::int32_t>(),
                                         .dweights = e.grad_out(weights).ptr<T>(),
                                         .dstatistics = e.grad_out(statistics).ptr<T>(),
                                         .counts = e.out(counts).ptr<T>(),
                                         .dlogits = e.grad_in(logits).tensor.ptr<T>()});
    if (const graph::GradSlot error = e.grad_in(bias))
      kernels::load_error(
          s, kernels::LoadErrorArgs<T>{options.rows.sequences, options.experts,
                                       e.out(counts).ptr<T>(), options.rows.share.rank == 0,
                                       error.tensor.ptr<T>(), error.accumulate});
  }
};

struct RouterLoad final : graph::Op {
  enum In { statistics, counts, offsets };
  enum Out { load };

  Rows rows;
  std::int64_t experts, experts_here;
  DType dtype;

  std::string_view kind() const override { return "router_load"; }
  graph::Saved saved() const override { return {}; }
  void forward(graph::Exec& e) const override {
    with_float(dtype, [&]<class T>() {
      using W = Accum<T>;
      device::on(e.stream(), [&](auto& s) {
        kernels::router_load(
            s, kernels::RouterLoadArgs<W>{rows.sequences, experts, e.in(statistics).ptr<W>(),
                                          e.in(counts).ptr<W>(), rows.share.rank == 0,
                                          e.in(offsets).ptr<std::int32_t>() + experts_here,
                                          e.out(load).ptr<double>()});
      });
    });
  }
  void backward(graph::Exec&) const override {}
};

}  // namespace

graph::Value router_logits(graph::Recorder& r, graph::Value x, graph::Value weight,
                           graph::Value bias) {
  auto op = std::make_unique<RouterLogits>();
  op->rows = r.info(x).shape[0];
  op->cols = r.info(x).shape[1];
  op->experts = r.info(weight).shape[0];
  op->biased = static_cast<bool>(bias);
  const Shape shape{op->rows, op->experts};
  return r.apply(std::move(op), {x, weight, bias}, {{shape, accum_type(r.dtype())}});
}

Routing route(graph::Recorder& r, graph::Value logits, graph::Value mask, graph::Value bias,
              const kernels::RouterOptions& o) {
  const std::int64_t tokens = o.rows.tokens(), slots = tokens * o.top_k;
  TFM_CHECK(r.info(logits).shape[0] == tokens && r.info(logits).shape[1] == o.experts,
            "logits of experts are " + r.info(logits).shape.str());
  auto op = std::make_unique<Route>();
  op->options = o;
  op->dtype = r.dtype();
  op->biased = static_cast<bool>(bias);
  const DType t = accum_type(r.dtype());
  const graph::OutputSpec weights{{tokens, o.top_k}, t},
      statistics{{o.rows.sequences, kernels::routing_statistics(o.experts)}, t},
      counts{{o.rows.sequences, o.experts}, t, false}, choice{{tokens, o.top_k}, DType::i32, false},
      by_slot{{slots}, DType::i32, false}, offsets{{o.experts + 1}, DType::i32, false},
      scores{{tokens, o.experts}, t, false}, of_token{{tokens}, t, false},
      kept{{o.capacity > 0 ? tokens : 0, o.top_k}, DType::i32, false};
  const graph::Value first = r.apply(std::move(op), {logits, mask, bias},
                                     {weights, statistics, counts, choice, by_slot, by_slot,
                                      offsets, scores, of_token, of_token, kept});
  const auto output = [&](Route::Out which) { return graph::Value{first.id + which}; };
  return {output(Route::weights), output(Route::statistics),
          output(Route::counts),  output(o.capacity > 0 ? Route::kept : Route::choice),
          output(Route::place),   output(Route::slot),
          output(Route::offsets)};
}

graph::Value router_load(graph::Recorder& r, const Routing& routing, const Routing& here,
                         const kernels::RouterOptions& options) {
  auto op = std::make_unique<RouterLoad>();
  op->rows = options.rows;
  op->experts = options.experts;
  op->experts_here = r.info(here.offsets).shape[0] - 1;
  op->dtype = r.dtype();
  return r.apply(std::move(op), {routing.statistics, routing.counts, here.offsets},
                 {{{options.experts + 2}, DType::f64, false}});
}

}  // namespace tfm::ops
