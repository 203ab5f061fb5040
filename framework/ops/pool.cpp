#include "kernels/elementwise.h"
#include "ops/ops.h"

namespace tfm::ops {
namespace {

// Ranks that share sequences add up their terms of a mean, and the last row of each sequence is
// one rank's; a first row is read where it is.
struct PoolOp final : graph::StagedOp {
  enum In { x, mask };
  enum Out { y };

  kernels::Pool pool_kind;
  Rows rows;
  std::int64_t cols;
  DType dtype;

  std::string_view kind() const override { return "pool"; }
  graph::Saved saved() const override { return {.inputs = {mask}, .outputs = {}}; }
  bool is_shared() const { return rows.share.ranks > 1 && pool_kind != kernels::Pool::first; }
  std::int64_t summary_bytes() const {
    return Tensor{nullptr, dtype, {rows.sequences, cols}}.bytes();
  }

  std::vector<comm::CollectiveCall> exchanges(graph::Phase) const override {
    if (!is_shared()) return {};
    return {{comm::Collective::all_reduce_sum, comm::Axis::context, summary_bytes()}};
  }
  // Only one rank has labels; the others' gradients are zero.
  std::int64_t workspace_bytes(graph::Phase phase) const override {
    return is_shared() && phase == graph::Phase::backward ? summary_bytes() : 0;
  }
  Tensor gradient(const graph::Exec& e) const {
    return is_shared() ? Tensor{e.workspace(), dtype, {rows.sequences, cols}} : e.grad_out(y);
  }
  graph::Exchanged exchanged(graph::Phase phase, std::size_t, const graph::Exec& e) const override {
    const Tensor t = phase == graph::Phase::backward ? gradient(e) : e.out(y);
    return {t, t};
  }
  void stage(graph::Phase phase, std::size_t k, graph::Exec& e) const override {
    with_float(dtype, [&]<class T>() {
      if (phase != graph::Phase::backward) return k == 0 ? forward_of<T>(e) : void();
      if (k == 0 && is_shared())
        return device::on(e.stream(), [&](auto& s) {
          kernels::copy(s, kernels::CopyArgs<T>{rows.sequences * cols, e.grad_out(y).ptr<T>(),
                                                gradient(e).template ptr<T>()});
        });
      backward_of<T>(e);
    });
  }

 private:
  template <class T>
  void forward_of(graph::Exec& e) const {
    device::on(e.stream(), [&](auto& s) {
      kernels::pool(s, kernels::PoolArgs<T>{pool_kind, rows, cols, e.in(mask).ptr<std::int32_t>(),
                                            e.in(x).ptr<T>(), e.out(y).ptr<T>()});
    });
  }
  template <class T>
  void backward_of(graph::Exec& e) const {
    const graph::GradSlot dx = e.grad_in(x);
    device::on(e.stream(), [&](auto& s) {
      kernels::pool_backward(
          s, kernels::PoolBackwardArgs<T>{pool_kind, rows, cols, e.in(mask).ptr<std::int32_t>(),
                                          gradient(e).template ptr<T>(), dx.tensor.ptr<T>(),
                                          dx.accumulate});
    });
  }
};

}  // namespace

graph::Value pool(graph::Recorder& r, graph::Value x, kernels::Pool kind, const Rows& rows,
                  graph::Value mask) {
  auto op = std::make_unique<PoolOp>();
  TFM_CHECK(r.info(x).shape[0] == rows.tokens(), "the rows of " + r.info(x).shape.str());
  op->pool_kind = kind;
  op->rows = rows;
  op->cols = r.info(x).shape[1];
  op->dtype = r.dtype();
  const Shape shape{rows.sequences, op->cols};
  return r.apply(std::move(op), {x, kind == kernels::Pool::first ? graph::Value{} : mask},
                 {{shape, r.dtype()}});
}

}  // namespace tfm::ops
