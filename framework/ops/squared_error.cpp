#include "kernels/squared_error.h"

#include "ops/losses.h"

namespace tfm::ops {
namespace {

struct SquaredError final : graph::Op {
  enum In { x, numbers };
  enum Out { total };

  std::int64_t rows;
  SquaredErrorOptions options;
  DType dtype;

  std::string_view kind() const override { return "squared_error"; }
  graph::Saved saved() const override { return {.inputs = {x, numbers}, .outputs = {}}; }
  bool makes_loss() const override { return true; }
  void forward(graph::Exec& e) const override {
    with_float(dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) {
        kernels::squared_error(s, kernels::SquaredErrorArgs<T>{rows, e.in(x).ptr<T>(),
                                                               e.in(numbers).ptr<std::int32_t>(),
                                                               e.out(total).ptr<double>()});
      });
    });
  }
  void backward(graph::Exec& e) const override {
    const graph::GradSlot dx = e.grad_in(x);
    if (!dx) return;
    const double* const scale =
        e.numbers() ? &e.numbers()->gradient_scale[static_cast<std::size_t>(options.objective)]
                    : nullptr;
    with_float(dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) {
        kernels::squared_error_backward(
            s, kernels::SquaredErrorBackwardArgs<T>{
                   rows, e.in(x).ptr<T>(), e.in(numbers).ptr<std::int32_t>(), scale,
                   !options.makes_gradient, dx.tensor.ptr<T>(), dx.accumulate});
      });
    });
  }
};

}  // namespace

graph::Value squared_error(graph::Recorder& r, graph::Value x, graph::Value numbers,
                           const SquaredErrorOptions& options) {
  auto op = std::make_unique<SquaredError>();
  op->rows = r.info(x).shape[0];
  op->options = options;
  op->dtype = r.dtype();
  return r.apply(std::move(op), {x, numbers}, {{{1}, DType::f64}});
}

}  // namespace tfm::ops
