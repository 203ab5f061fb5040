#include "ops/experts.h"

#include "kernels/elementwise.h"

namespace tfm::ops {
namespace {

// A layer of the experts, whose gradients no other op adds to but those of x and of parameters.
struct ExpertsOp : graph::Op {
  std::int64_t slots, top_k, experts, in, out;
  std::int64_t expected;  // slots with an expert, for predictions

  // Bytes of routed rows of the model's width; only the kernels of a pass write and read them.
  std::int64_t routed_bytes(std::int64_t width, DType dtype) const {
    return slots * width * size_of(dtype);
  }
  graph::Work::Product gradient() const { return {.m = out, .n = in, .k = expected, .sum = true}; }
};

struct ExpertsUp final : ExpertsOp {
  enum In { x, weight, bias, place, slot, offsets };
  enum Out { h };

  DType dtype;

  std::string_view kind() const override { return "experts_up"; }
  graph::Saved saved() const override { return {.inputs = {x, weight, place, slot, offsets}}; }
  graph::Work work(graph::Phase phase) const override {
    if (phase != graph::Phase::backward)
      return {.products = {{expected, out, in}}, .extra_elements = 2 * slots * in, .kernels = 2};
    return {.products = {gradient(), {expected, in, out}},
            .extra_elements = 4 * slots * in,
            .kernels = 4};
  }
  std::int64_t workspace_bytes(graph::Phase) const override { return routed_bytes(in, dtype); }
  void forward(graph::Exec& e) const override {
    with_float(dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) {
        T* const routed = gather<T>(s, e);
        kernels::grouped_gemm(
            s, kernels::GroupedGemmArgs<T>{
                   slots, experts, out, in, true, e.in(offsets).ptr<std::int32_t>(), routed,
                   e.in(weight).ptr<T>(), e.in(bias).ptr<T>(), e.out(h).ptr<T>()});
      });
    });
  }
  void backward(graph::Exec& e) const override {
    const graph::GradSlot dx = e.grad_in(x), dw = e.grad_in(weight), db = e.grad_in(bias);
    with_float(dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) {
        const T* const dh = e.grad_out(h).ptr<T>();
        const auto* const first = e.in(offsets).ptr<std::int32_t>();
        if (dw)
          kernels::grouped_gradients(
              s, kernels::GroupedGradientsArgs<T>{
                     slots, experts, out, in, first, dh, gather<T>(s, e), dw.tensor.ptr<Accum<T>>(),
                     db.tensor.ptr<Accum<T>>(), dw.accumulate, db.accumulate});
        if (!dx) return;
        T* const routed = reinterpret_cast<T*>(e.workspace());
        kernels::grouped_gemm(s,
                              kernels::GroupedGemmArgs<T>{slots, experts, in, out, false, first, dh,
                                                          e.in(weight).ptr<T>(), nullptr, routed});
        kernels::combine_slots(s, kernels::CombineSlotsArgs<T>{
                                      slots / top_k, in, top_k, e.in(place).ptr<std::int32_t>(),
                                      nullptr, routed, dx.tensor.ptr<T>(), dx.accumulate});
      });
    });
  }

 private:
  template <class T, class S>
  T* gather(S& s, graph::Exec& e) const {
    T* const routed = reinterpret_cast<T*>(e.workspace());
    kernels::gather_slots(
        s, kernels::GatherSlotsArgs<T>{slots, in, top_k, e.in(slot).ptr<std::int32_t>(),
                                       e.in(x).ptr<T>(), routed});
    return routed;
  }
};

struct ExpertsDown final : ExpertsOp {
  enum In { h, weight, bias, weights, choice, place, slot, offsets };
  enum Out { y };

  bool adds_bias;
  DType dtype;

  std::string_view kind() const override { return "experts_down"; }
  graph::Saved saved() const override {
    return {.inputs = {h, weight, bias, weights, choice, slot, offsets}};
  }
  graph::Work work(graph::Phase phase) const override {
    if (phase != graph::Phase::backward)
      return {.products = {{expected, out, in}}, .extra_elements = 2 * slots * out, .kernels = 2};
    return {.products = {{expected, in, out}, gradient()},
            .extra_elements = slots * (5 * out + 3 * in),
            .kernels = 5};
  }
  std::int64_t workspace_bytes(graph::Phase) const override { return routed_bytes(out, dtype); }
  void forward(graph::Exec& e) const override {
    with_float(dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) {
        T* const routed = reinterpret_cast<T*>(e.workspace());
        kernels::grouped_gemm(
            s, kernels::GroupedGemmArgs<T>{slots, experts, out, in, true,
                                           e.in(offsets).ptr<std::int32_t>(), e.in(h).ptr<T>(),
                                           e.in(weight).ptr<T>(), added_bias<T>(e), routed});
        kernels::combine_slots(s, kernels::CombineSlotsArgs<T>{
                                      slots / top_k, out, top_k, e.in(place).ptr<std::int32_t>(),
                                      e.in(weights).ptr<Accum<T>>(), routed, e.out(y).ptr<T>()});
      });
    });
  }
  void backward(graph::Exec& e) const override {
    with_float(dtype,
               [&]<class T>() { device::on(e.stream(), [&](auto& s) { backward_of<T>(s, e); }); });
  }

 private:
  template <class T>
  const T* added_bias(const graph::Exec& e) const {
    return adds_bias ? e.in(bias).ptr<T>() : nullptr;
  }
  // Gradients of h and of the outputs of experts are first those of an unweighted sum.
  template <class T, class S>
  void backward_of(S& s, graph::Exec& e) const {
    using W = Accum<T>;
    const graph::GradSlot dh = e.grad_in(h), dw = e.grad_in(weight), db = e.grad_in(bias),
                          dweights = e.grad_in(weights);
    const auto* const first = e.in(offsets).ptr<std::int32_t>();
    const auto* const slots_of_rows = e.in(slot).ptr<std::int32_t>();
    T* const dy = reinterpret_cast<T*>(e.workspace());
    kernels::gather_slots(s, kernels::GatherSlotsArgs<T>{slots, out, top_k, slots_of_rows,
                                                         e.grad_out(y).ptr<T>(), dy});
    kernels::grouped_gemm(
        s, kernels::GroupedGemmArgs<T>{slots, experts, in, out, false, first, dy,
                                       e.in(weight).ptr<T>(), nullptr, dh.tensor.ptr<T>()});
    kernels::fill(s, kernels::FillArgs<W>{slots, W{0}, dweights.tensor.ptr<W>()});
    kernels::weigh_slots(
        s, kernels::WeighSlotsArgs<T>{slots, in, out, slots_of_rows, e.in(weights).ptr<W>(),
                                      e.in(h).ptr<T>(), dh.tensor.ptr<T>(), dy, added_bias<T>(e),
                                      e.in(choice).ptr<std::int32_t>(), dweights.tensor.ptr<W>()});
    if (dw)
      kernels::grouped_gradients(
          s, kernels::GroupedGradientsArgs<T>{
                 slots, experts, out, in, first, dy, e.in(h).ptr<T>(), dw.tensor.ptr<W>(),
                 adds_bias ? db.tensor.ptr<W>() : nullptr, dw.accumulate, db.accumulate});
    if (db && !adds_bias && !db.accumulate)
      kernels::fill(s, kernels::FillArgs<W>{experts * out, W{0}, db.tensor.ptr<W>()});
  }
};

struct GatedAdd final : graph::Op {
  enum In { x, gate, residual };
  enum Out { y };

  std::int64_t rows, cols;

  std::string_view kind() const override { return "gated_add"; }
  graph::Saved saved() const override { return {.inputs = {x, gate}}; }
  void forward(graph::Exec& e) const override {
    with_float(e.out(y).dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) {
        kernels::gated_add(
            s, kernels::GatedAddArgs<T>{rows, cols, e.in(gate).ptr<Accum<T>>(), e.in(x).ptr<T>(),
                                        e.in(residual).ptr<T>(), e.out(y).ptr<T>()});
      });
    });
  }
  void backward(graph::Exec& e) const override {
    const graph::GradSlot dr = e.grad_in(residual);
    with_float(e.grad_out(y).dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) {
        const T* const dy = e.grad_out(y).ptr<T>();
        kernels::gated_add_backward(
            s, kernels::GatedAddBackwardArgs<T>{rows, cols, e.in(gate).ptr<Accum<T>>(),
                                                e.in(x).ptr<T>(), dy, e.grad_in(x).tensor.ptr<T>(),
                                                e.grad_in(gate).tensor.ptr<Accum<T>>()});
        if (dr)
          kernels::copy(s,
                        kernels::CopyArgs<T>{rows * cols, dy, dr.tensor.ptr<T>(), dr.accumulate});
      });
    });
  }
};

template <class Op>
std::unique_ptr<Op> experts_op(const graph::Recorder& r, const Routing& routing, graph::Value in,
                               graph::Value weight) {
  auto op = std::make_unique<Op>();
  op->slots = r.info(routing.slot).shape[0];
  op->expected = routing.expected > 0 ? routing.expected : op->slots;
  op->top_k = r.info(routing.weights).shape[1];
  op->experts = r.info(routing.offsets).shape[0] - 1;
  op->in = r.info(weight).shape[1];
  op->out = div_exact(r.info(weight).shape[0], op->experts);
  op->dtype = r.dtype();
  TFM_CHECK(r.info(in).shape[1] == op->in, "experts read rows of " + r.info(in).shape.str());
  return op;
}

}  // namespace

graph::Value experts_up(graph::Recorder& r, graph::Value x, const Routing& routing,
                        graph::Value weight, graph::Value bias) {
  auto op = experts_op<ExpertsUp>(r, routing, x, weight);
  const Shape shape{op->slots, op->out};
  return r.apply(std::move(op), {x, weight, bias, routing.place, routing.slot, routing.offsets},
                 {{shape, r.dtype()}});
}

graph::Value experts_down(graph::Recorder& r, graph::Value h, const Routing& routing,
                          graph::Value weight, graph::Value bias, bool adds_bias) {
  auto op = experts_op<ExpertsDown>(r, routing, h, weight);
  op->adds_bias = adds_bias;
  const Shape shape{div_exact(op->slots, op->top_k), op->out};
  return r.apply(std::move(op),
                 {h, weight, bias, routing.weights, routing.choice, routing.place, routing.slot,
                  routing.offsets},
                 {{shape, r.dtype()}});
}

graph::Value gated_add(graph::Recorder& r, graph::Value x, graph::Value gate,
                       graph::Value residual) {
  auto op = std::make_unique<GatedAdd>();
  op->rows = r.info(x).shape[0];
  op->cols = r.info(x).shape[1];
  const Shape shape{op->rows, op->cols};
  return r.apply(std::move(op), {x, gate, residual}, {{shape, r.dtype()}});
}

}  // namespace tfm::ops
