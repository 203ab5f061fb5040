#include "kernels/elementwise.h"
#include "kernels/scratch.h"
#include "ops/ops.h"

namespace tfm::ops {
namespace {

template <class T>
void copy_to(graph::Exec& e, const Tensor& from, const Tensor& to, bool accumulate) {
  device::on(e.stream(), [&](auto& s) {
    kernels::copy(s, kernels::CopyArgs<T>{from.elements(), from.ptr<T>(), to.ptr<T>(), accumulate});
  });
}

// Common part: what is known when recording.
struct TensorCollective : graph::StagedOp {
  enum In { x, bias };
  enum Out { y };

  Shape in, out;
  DType dtype;
  bool has_bias = false;
  graph::Saved saved() const override { return {.inputs = {bias}}; }
  std::int64_t scratch_bytes(graph::Phase phase, DType) const override {
    return has_bias && phase == graph::Phase::backward
               ? kernels::column_sum_scratch(out[0], out[1], size_of(accum_type(dtype)))
               : 0;
  }
  std::int64_t in_bytes() const { return Tensor{nullptr, dtype, in}.bytes(); }
  std::int64_t out_bytes() const { return Tensor{nullptr, dtype, out}.bytes(); }
  // Where a gradient cannot be written in place because it is added to.
  static Tensor target(const graph::Exec& e, const graph::GradSlot& d) {
    return d.accumulate ? Tensor{e.workspace(), d.tensor.dtype, d.tensor.shape} : d.tensor;
  }
  template <class T>
  static void settle(graph::Exec& e, const graph::GradSlot& d, const Tensor& t) {
    if (d.accumulate) copy_to<T>(e, t, d.tensor, true);
  }
  template <class T>
  static void add_bias(graph::Exec& e) {
    if (const Tensor& b = e.in(bias), &sum = e.out(y); b)
      device::on(e.stream(), [&](auto& s) {
        kernels::add_bias(
            s, kernels::AddBiasArgs<T>{sum.shape[0], sum.shape[1], b.ptr<T>(), sum.ptr<T>()});
      });
  }
  template <class T>
  static void add_bias_backward(graph::Exec& e) {
    const Tensor& dy = e.grad_out(y);
    if (const graph::GradSlot& db = e.grad_in(bias))
      device::on(e.stream(), [&](auto& s) {
        kernels::column_sum(
            s, kernels::ColumnSumArgs<T>{dy.shape[0], dy.shape[1], dy.shape[1], dy.ptr<T>(),
                                         db.tensor.ptr<Accum<T>>(), db.accumulate});
      });
  }
  std::int64_t workspace_bytes(graph::Phase p) const override {
    return p == graph::Phase::backward ? in_bytes() : 0;
  }
};

struct CopyToTpRegion final : TensorCollective {
  std::string_view kind() const override { return "copy_to_tp_region"; }
  bool cheap() const override { return true; }
  std::vector<comm::CollectiveCall> exchanges(graph::Phase p) const override {
    if (p != graph::Phase::backward) return {};
    return {{comm::Collective::all_reduce_sum, comm::Axis::tensor, in_bytes()}};
  }
  graph::Exchanged exchanged(graph::Phase, std::size_t, const graph::Exec& e) const override {
    const Tensor t = target(e, e.grad_in(x));
    return {t, t};
  }
  void stage(graph::Phase p, std::size_t k, graph::Exec& e) const override {
    with_float(dtype, [&]<class T>() {
      if (p != graph::Phase::backward) return copy_to<T>(e, e.in(x), e.out(y), false);
      const graph::GradSlot d = e.grad_in(x);
      const Tensor t = target(e, d);
      k == 0 ? copy_to<T>(e, e.grad_out(y), t, false) : settle<T>(e, d, t);
    });
  }
};

struct ReduceFromTpRegion final : TensorCollective {
  std::string_view kind() const override { return "reduce_from_tp_region"; }
  std::vector<comm::CollectiveCall> exchanges(graph::Phase p) const override {
    if (p == graph::Phase::backward) return {};
    return {{comm::Collective::all_reduce_sum, comm::Axis::tensor, in_bytes()}};
  }
  graph::Exchanged exchanged(graph::Phase, std::size_t, const graph::Exec& e) const override {
    return {e.out(y), e.out(y)};
  }
  std::int64_t workspace_bytes(graph::Phase) const override { return 0; }
  graph::OperandSet passes_gradient() const override { return {x}; }
  graph::Work work(graph::Phase) const override { return {.kernel_per_gradient = true}; }
  void stage(graph::Phase p, std::size_t k, graph::Exec& e) const override {
    with_float(dtype, [&]<class T>() {
      if (p != graph::Phase::backward)
        return k == 0 ? copy_to<T>(e, e.in(x), e.out(y), false) : add_bias<T>(e);
      const graph::GradSlot d = e.grad_in(x);
      if (d) copy_to<T>(e, e.grad_out(y), d.tensor, d.accumulate);
      add_bias_backward<T>(e);
    });
  }
};

struct GatherSequence final : TensorCollective {
  std::string_view kind() const override { return "gather_sequence"; }
  bool cheap() const override { return true; }
  graph::Work work(graph::Phase) const override { return {.kernels = 0}; }
  std::vector<comm::CollectiveCall> exchanges(graph::Phase p) const override {
    return {{p == graph::Phase::backward ? comm::Collective::reduce_scatter
                                         : comm::Collective::all_gather,
             comm::Axis::tensor, out_bytes()}};
  }
  graph::Exchanged exchanged(graph::Phase p, std::size_t, const graph::Exec& e) const override {
    if (p == graph::Phase::backward) return {e.grad_out(y), target(e, e.grad_in(x))};
    return {e.in(x), e.out(y)};
  }
  void stage(graph::Phase p, std::size_t k, graph::Exec& e) const override {
    if (p != graph::Phase::backward || k == 0) return;
    with_float(dtype, [&]<class T>() {
      const graph::GradSlot d = e.grad_in(x);
      settle<T>(e, d, target(e, d));
    });
  }
};

struct ScatterSequence final : TensorCollective {
  std::string_view kind() const override { return "scatter_sequence"; }
  graph::Work work(graph::Phase) const override { return {.kernels = has_bias ? 1 : 0}; }
  std::vector<comm::CollectiveCall> exchanges(graph::Phase p) const override {
    return {{p == graph::Phase::backward ? comm::Collective::all_gather
                                         : comm::Collective::reduce_scatter,
             comm::Axis::tensor, in_bytes()}};
  }
  graph::Exchanged exchanged(graph::Phase p, std::size_t, const graph::Exec& e) const override {
    if (p == graph::Phase::backward) return {e.grad_out(y), target(e, e.grad_in(x))};
    return {e.in(x), e.out(y)};
  }
  void stage(graph::Phase p, std::size_t k, graph::Exec& e) const override {
    if (k == 0) return;
    with_float(dtype, [&]<class T>() {
      if (p != graph::Phase::backward) return add_bias<T>(e);
      const graph::GradSlot d = e.grad_in(x);
      settle<T>(e, d, target(e, d));
      add_bias_backward<T>(e);
    });
  }
};

template <class C>
graph::Value record(graph::Recorder& r, graph::Value x, graph::Value bias, const Shape& out) {
  auto op = std::make_unique<C>();
  op->in = r.info(x).shape;
  op->out = out;
  op->dtype = r.dtype();
  op->has_bias = static_cast<bool>(bias);
  return r.apply(std::move(op), {x, bias}, {{out, r.dtype()}});
}

}  // namespace

graph::Value copy_to_tp_region(graph::Recorder& r, graph::Value x) {
  return record<CopyToTpRegion>(r, x, {}, r.info(x).shape);
}
graph::Value reduce_from_tp_region(graph::Recorder& r, graph::Value x, graph::Value bias) {
  return record<ReduceFromTpRegion>(r, x, bias, r.info(x).shape);
}
graph::Value gather_sequence(graph::Recorder& r, graph::Value x, int ranks) {
  const Shape s = r.info(x).shape;
  return record<GatherSequence>(r, x, {}, {s[0] * ranks, s[1]});
}
graph::Value scatter_sequence(graph::Recorder& r, graph::Value x, int ranks, graph::Value bias) {
  const Shape s = r.info(x).shape;
  return record<ScatterSequence>(r, x, bias, {div_exact(s[0], ranks), s[1]});
}

}  // namespace tfm::ops
