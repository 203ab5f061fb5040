// Terms of the loss that keep the load of experts even.
#include "kernels/elementwise.h"
#include "ops/experts.h"

namespace tfm::ops {
namespace {

struct RouterTermOp final : graph::Op {
  enum In { statistics, counts, before };
  enum Out { sum };

  kernels::RouterTerm term;
  std::int64_t sequences, experts;
  int objective;
  bool makes_gradient;
  DType dtype;

  std::string_view kind() const override { return "router_term"; }
  graph::Saved saved() const override { return {.inputs = {counts}, .outputs = {}}; }
  bool makes_loss() const override { return makes_gradient; }
  void forward(graph::Exec& e) const override {
    with_float(dtype, [&]<class T>() {
      using W = Accum<T>;
      device::on(e.stream(), [&](auto& s) {
        kernels::router_term(
            s, kernels::RouterTermArgs<W>{term, sequences, experts, e.in(statistics).ptr<W>(),
                                          e.in(counts).ptr<W>(), e.in(before).ptr<double>(),
                                          e.out(sum).ptr<double>()});
      });
    });
  }
  void backward(graph::Exec& e) const override {
    const graph::GradSlot d = e.grad_in(statistics);
    if (!d) return;
    const StepNumbers* const numbers = e.numbers();
    const double* const scale =
        numbers ? &numbers->gradient_scale[static_cast<std::size_t>(objective)] : nullptr;
    with_float(dtype, [&]<class T>() {
      using W = Accum<T>;
      device::on(e.stream(), [&](auto& s) {
        kernels::router_term_backward(
            s, kernels::RouterTermBackwardArgs<W>{term, sequences, experts, e.in(counts).ptr<W>(),
                                                  scale, d.tensor.ptr<W>(), d.accumulate});
      });
    });
  }
};

struct SumRouting final : graph::Op {
  enum In { statistics, counts, before };
  enum Out { sums };

  kernels::RouterOptions options;
  DType dtype;

  std::string_view kind() const override { return "sum_routing"; }
  graph::Saved saved() const override { return {.inputs = {counts}, .outputs = {}}; }
  graph::OperandSet passes_gradient() const override { return {before}; }
  void forward(graph::Exec& e) const override {
    with_float(dtype, [&]<class T>() {
      using W = Accum<T>;
      device::on(e.stream(), [&](auto& s) {
        kernels::sum_routing(
            s, kernels::SumRoutingArgs<W>{options.rows.sequences, options.experts, options.top_k,
                                          e.in(statistics).ptr<W>(), e.in(counts).ptr<W>(),
                                          options.rows.share.rank == 0, e.in(before).ptr<W>(),
                                          e.out(sums).ptr<W>()});
      });
    });
  }
  void backward(graph::Exec& e) const override {
    const graph::GradSlot d = e.grad_in(statistics), passed = e.grad_in(before);
    with_float(dtype, [&]<class T>() {
      using W = Accum<T>;
      const W* const dsums = e.grad_out(sums).ptr<W>();
      device::on(e.stream(), [&](auto& s) {
        kernels::sum_routing_backward(
            s, kernels::SumRoutingBackwardArgs<W>{options.rows.sequences, options.experts,
                                                  options.top_k, e.in(counts).ptr<W>(), dsums,
                                                  d.tensor.ptr<W>(), d.accumulate});
        if (passed)
          kernels::copy(s, kernels::CopyArgs<W>{2 * options.experts + 1, dsums,
                                                passed.tensor.ptr<W>(), passed.accumulate});
      });
    });
  }
};

struct BatchBalance final : graph::StagedOp {
  enum In { sums };
  enum Out { loss, totals };

  std::int64_t experts;
  comm::AxisSet axes;
  int objective;
  bool makes_gradient, is_shared;
  DType dtype;

  std::string_view kind() const override { return "batch_balance"; }
  graph::Saved saved() const override { return {.inputs = {}, .outputs = {totals}}; }
  bool makes_loss() const override { return makes_gradient; }
  std::vector<comm::CollectiveCall> exchanges(graph::Phase phase) const override {
    if (!is_shared || phase == graph::Phase::backward) return {};
    return {
        {comm::Collective::all_reduce_sum, axes, (2 * experts + 1) * size_of(accum_type(dtype))}};
  }
  graph::Exchanged exchanged(graph::Phase, std::size_t, const graph::Exec& e) const override {
    return {e.out(totals), e.out(totals)};
  }
  void stage(graph::Phase phase, std::size_t k, graph::Exec& e) const override {
    with_float(dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) {
        if (phase == graph::Phase::backward) return backward_of<Accum<T>>(s, e);
        if (k == 0) take_sums<Accum<T>>(s, e);
        if (k == 1 || !is_shared) make_loss<Accum<T>>(s, e);
      });
    });
  }

 private:
  template <class T, class S>
  void take_sums(S& s, graph::Exec& e) const {
    kernels::copy(
        s, kernels::CopyArgs<T>{2 * experts + 1, e.in(sums).ptr<T>(), e.out(totals).ptr<T>()});
  }
  template <class T, class S>
  void make_loss(S& s, graph::Exec& e) const {
    kernels::batch_balance(
        s, kernels::BatchBalanceArgs<T>{experts, e.in(sums).ptr<T>(), e.out(totals).ptr<T>(),
                                        e.out(loss).ptr<double>()});
  }
  template <class T, class S>
  void backward_of(S& s, graph::Exec& e) const {
    const StepNumbers* const numbers = e.numbers();
    kernels::batch_balance_backward(
        s, kernels::BatchBalanceBackwardArgs<T>{
               experts, e.out(totals).ptr<T>(),
               numbers ? &numbers->gradient_scale[static_cast<std::size_t>(objective)] : nullptr,
               e.grad_in(sums).tensor.ptr<T>()});
  }
};

}  // namespace

graph::Value router_term(graph::Recorder& r, kernels::RouterTerm term, const Routing& routing,
                         const kernels::RouterOptions& options, graph::Value before, int objective,
                         bool makes_gradient) {
  auto op = std::make_unique<RouterTermOp>();
  op->term = term;
  op->sequences = options.rows.sequences;
  op->experts = options.experts;
  op->objective = objective;
  op->makes_gradient = makes_gradient;
  op->dtype = r.dtype();
  return r.apply(std::move(op), {routing.statistics, routing.counts, before},
                 {{{1}, DType::f64, false}});
}

graph::Value sum_routing(graph::Recorder& r, const Routing& routing,
                         const kernels::RouterOptions& options, graph::Value before) {
  auto op = std::make_unique<SumRouting>();
  op->options = options;
  op->dtype = r.dtype();
  const Shape shape{2 * options.experts + 1};
  return r.apply(std::move(op), {routing.statistics, routing.counts, before},
                 {{shape, accum_type(r.dtype())}});
}

graph::Value batch_balance(graph::Recorder& r, graph::Value sums, comm::AxisSet axes, int objective,
                           bool makes_gradient) {
  auto op = std::make_unique<BatchBalance>();
  op->experts = r.info(sums).shape[0] / 2;
  op->axes = axes;
  op->is_shared = !axes.empty();
  op->objective = objective;
  op->makes_gradient = makes_gradient;
  op->dtype = r.dtype();
  return r.apply(std::move(op), {sums},
                 {{{1}, DType::f64, false}, {r.info(sums).shape, accum_type(r.dtype()), false}});
}

}  // namespace tfm::ops
