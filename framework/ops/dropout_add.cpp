#include "kernels/dropout.h"
#include "kernels/elementwise.h"
#include "ops/ops.h"

namespace tfm::ops {
namespace {

struct DropoutAdd final : Op {
  std::int64_t rows, cols;
  double p;
  Place place;
  std::uint32_t stream;
  bool residual;

  std::string_view kind() const override { return residual ? "residual" : "dropout"; }
  Saved saved() const override { return {}; }
  bool cheap() const override { return true; }
  unsigned passes_gradient() const override { return (p == 0 ? 0b01u : 0u) | (residual ? 0b10u : 0u); }
  Work work(Phase) const override { return {.each = true}; }

  kernels::Dropout mask(const Exec& e) const {
    return {static_cast<float>(p), {e.state().seed, Purpose::dropout, stream}, e.numbers()};
  }
  kernels::DropoutPlace where() const { return {place.row_offset, place.col_offset, place.cols_total, place.sequence_length}; }
  void forward(Exec& e) const override {
    with_float(e.out(0).dtype, [&]<class T>() {
      on(e.stream(), [&](auto& s) {
        kernels::dropout_add(s, kernels::DropoutAddArgs<T>{rows, cols, e.in(0).ptr<T>(), residual ? e.in(1).ptr<T>() : nullptr,
                                                           e.out(0).ptr<T>(), false, mask(e), where()});
      });
    });
  }
  void backward(Exec& e) const override {
    with_float(e.grad_out(0).dtype, [&]<class T>() {
      const T* dy = e.grad_out(0).ptr<T>();
      on(e.stream(), [&](auto& s) {
        if (GradSlot dx = e.grad_in(0))
          kernels::dropout_add(s, kernels::DropoutAddArgs<T>{rows, cols, dy, nullptr, dx.tensor.ptr<T>(), dx.accumulate, mask(e), where()});
        if (GradSlot dr = e.grad_in(1))
          kernels::copy(s, kernels::CopyArgs<T>{rows * cols, dy, dr.tensor.ptr<T>(), dr.accumulate});
      });
    });
  }
};

}  // namespace

Value dropout_add(Recorder& r, Value x, Value residual, double p, const Place& place) {
  auto op = std::make_unique<DropoutAdd>();
  const Shape shape = r.info(x).shape;
  op->rows = shape[0];
  op->cols = shape[1];
  op->p = p;
  op->place = place;
  op->residual = static_cast<bool>(residual);
  op->stream = stream_of(r.qualified(std::string(op->kind())));
  return r.apply(std::move(op), {x, residual}, {{shape, r.real()}});
}

}  // namespace tfm::ops
