#include "kernels/norm.h"
#include "kernels/scratch.h"

#include "ops/dropout_add.h"

namespace tfm::ops {
namespace {

struct Norm final : Op {
  std::int64_t rows, cols;
  NormOptions options;
  bool shift;

  std::string_view kind() const override { return "norm"; }
  Saved saved() const override { return {.inputs = 0b011, .outputs = 0b110}; }
  bool cheap() const override { return true; }
  std::int64_t scratch_bytes(Phase phase, DType real) const override {
    return phase == Phase::backward ? kernels::norm_backward_scratch(rows, cols, static_cast<std::int64_t>(size_of(real))) : 0;
  }
  Work work(Phase phase) const override { return {.kernels = phase == Phase::backward ? 2 : 1}; }

  template <class T> kernels::NormArgs<T> forward_args(Exec& e) const {
    return {rows, cols, e.in(0).ptr<T>(), e.in(1).ptr<T>(), shift ? e.in(2).ptr<T>() : nullptr, e.out(0).ptr<T>(), e.out(1).ptr<Wide<T>>(),
            e.out(2).ptr<Wide<T>>(), options.eps, options.rms};
  }
  void forward(Exec& e) const override {
    with_float(e.out(0).dtype, [&]<class T>() { on(e.stream(), [&](auto& s) { kernels::norm(s, forward_args<T>(e)); }); });
  }
  Join joins(const Op& before, Phase phase) const override {
    return phase != Phase::backward && dynamic_cast<const DropoutAdd*>(&before) ? Join::one_pass : Join::no;
  }
  void run_joined(Phase, const Op& before, Exec& of_before, Exec& e) const override {
    with_float(e.out(0).dtype, [&]<class T>() {
      on(e.stream(), [&](auto& s) {
        kernels::add_norm(s, kernels::AddNormArgs<T>{static_cast<const DropoutAdd&>(before).forward_args<T>(of_before), forward_args<T>(e)});
      });
    });
  }
  void backward(Exec& e) const override {
    with_float(e.grad_out(0).dtype, [&]<class T>() {
      const GradSlot dx = e.grad_in(0), dgain = e.grad_in(1), dshift = e.grad_in(2);
      on(e.stream(), [&](auto& s) {
        kernels::norm_backward(
            s, kernels::NormBackwardArgs<T>{rows, cols, e.grad_out(0).ptr<T>(), e.in(0).ptr<T>(), e.in(1).ptr<T>(),
                                            e.out(1).ptr<Wide<T>>(), e.out(2).ptr<Wide<T>>(), dx.tensor.ptr<T>(), dx.accumulate,
                                            dgain.tensor.ptr<Wide<T>>(), dgain.accumulate, dshift.tensor.ptr<Wide<T>>(), dshift.accumulate,
                                            options.rms});
      });
    });
  }
};

}  // namespace

Value norm(Recorder& r, Value x, NormOptions options, Value gain, Value shift) {
  auto op = std::make_unique<Norm>();
  const Shape shape = r.info(x).shape;
  op->rows = shape[0];
  op->cols = shape[1];
  op->options = options;
  op->shift = static_cast<bool>(shift);
  return r.apply(std::move(op), {x, gain, shift},
                 {{shape, r.real()}, {{shape[0]}, wide(r.real()), false}, {{shape[0]}, wide(r.real()), false}});
}

}  // namespace tfm::ops
