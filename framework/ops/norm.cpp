#include "kernels/norm.h"

#include "kernels/scratch.h"
#include "ops/dropout_add.h"

namespace tfm::ops {
namespace {

struct Norm final : graph::Op {
  std::int64_t rows, cols;
  NormOptions options;
  bool shift;

  std::string_view kind() const override { return "norm"; }
  graph::Saved saved() const override { return {.inputs = 0b011, .outputs = 0b110}; }
  bool cheap() const override { return true; }
  std::int64_t scratch_bytes(graph::Phase phase, DType real) const override {
    return phase == graph::Phase::backward
               ? kernels::norm_backward_scratch(rows, cols,
                                                static_cast<std::int64_t>(size_of(real)))
               : 0;
  }
  graph::Work work(graph::Phase phase) const override {
    return {.kernels = phase == graph::Phase::backward ? 2 : 1};
  }

  template <class T>
  kernels::NormArgs<T> forward_args(graph::Exec& e) const {
    return {rows,
            cols,
            e.in(0).ptr<T>(),
            e.in(1).ptr<T>(),
            shift ? e.in(2).ptr<T>() : nullptr,
            e.out(0).ptr<T>(),
            e.out(1).ptr<Wide<T>>(),
            e.out(2).ptr<Wide<T>>(),
            options.eps,
            options.rms};
  }
  void forward(graph::Exec& e) const override {
    with_float(e.out(0).dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) { kernels::norm(s, forward_args<T>(e)); });
    });
  }
  graph::Join joins(const graph::Op& before, graph::Phase phase) const override {
    return phase != graph::Phase::backward && dynamic_cast<const DropoutAdd*>(&before)
               ? graph::Join::one_pass
               : graph::Join::no;
  }
  void run_joined(graph::Phase, const graph::Op& before, graph::Exec& of_before,
                  graph::Exec& e) const override {
    with_float(e.out(0).dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) {
        kernels::add_norm(s, kernels::AddNormArgs<T>{
                                 static_cast<const DropoutAdd&>(before).forward_args<T>(of_before),
                                 forward_args<T>(e)});
      });
    });
  }
  void backward(graph::Exec& e) const override {
    with_float(e.grad_out(0).dtype, [&]<class T>() {
      const graph::GradSlot dx = e.grad_in(0), dgain = e.grad_in(1), dshift = e.grad_in(2);
      device::on(e.stream(), [&](auto& s) {
        kernels::norm_backward(
            s, kernels::NormBackwardArgs<T>{
                   rows, cols, e.grad_out(0).ptr<T>(), e.in(0).ptr<T>(), e.in(1).ptr<T>(),
                   e.out(1).ptr<Wide<T>>(), e.out(2).ptr<Wide<T>>(), dx.tensor.ptr<T>(),
                   dx.accumulate, dgain.tensor.ptr<Wide<T>>(), dgain.accumulate,
                   dshift.tensor.ptr<Wide<T>>(), dshift.accumulate, options.rms});
      });
    });
  }
};

}  // namespace

graph::Value norm(graph::Recorder& r, graph::Value x, NormOptions options, graph::Value gain,
                  graph::Value shift) {
  auto op = std::make_unique<Norm>();
  const Shape shape = r.info(x).shape;
  op->rows = shape[0];
  op->cols = shape[1];
  op->options = options;
  op->shift = static_cast<bool>(shift);
  return r.apply(std::move(op), {x, gain, shift},
                 {{shape, r.real()},
                  {{shape[0]}, wide(r.real()), false},
                  {{shape[0]}, wide(r.real()), false}});
}

}  // namespace tfm::ops
