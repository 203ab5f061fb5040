#include "ops/gated_delta.h"

#include <algorithm>

#include "kernels/elementwise.h"
#include "kernels/scratch.h"
#include "kernels/short_convolution.h"

namespace tfm::ops {
namespace {

constexpr graph::Saved kNothing{};

struct ShortConvolution final : graph::Op {
  enum In { x, weight, bias, segments, state };
  enum Out { y };

  Rows rows;
  std::int64_t cols, kernel;
  bool biased, decodes;

  std::string_view kind() const override {
    return decodes ? "continued_convolution" : "short_convolution";
  }
  graph::Saved saved() const override {
    return decodes ? kNothing : graph::Saved{.inputs = {x, weight, bias, segments}};
  }
  bool cheap() const override { return true; }
  std::int64_t scratch_bytes(graph::Phase phase, DType dtype) const override {
    return phase == graph::Phase::backward
               ? kernels::column_sum_scratch(rows.tokens(), cols * (kernel + biased),
                                             size_of(accum_type(dtype)))
               : 0;
  }
  template <class T>
  kernels::ShortConvolutionArgs<T> args(const graph::Exec& e) const {
    return {rows.sequences,
            rows.sequence_length,
            cols,
            static_cast<int>(kernel),
            e.in(x).template ptr<T>(),
            e.in(weight).template ptr<T>(),
            e.in(bias) ? e.in(bias).template ptr<T>() : nullptr,
            e.in(segments) ? e.in(segments).template ptr<std::int32_t>() : nullptr};
  }
  void forward(graph::Exec& e) const override {
    with_float(e.out(y).dtype, [&]<class T>() {
      auto a = args<T>(e);
      a.state = decodes ? e.in(state).ptr<T>() : nullptr;
      a.y = e.out(y).ptr<T>();
      device::on(e.stream(), [&](auto& s) { kernels::short_convolution(s, a); });
    });
  }
  void backward(graph::Exec& e) const override {
    TFM_CHECK(!decodes, "forward only");
    with_float(e.grad_out(y).dtype, [&]<class T>() {
      const graph::GradSlot dx = e.grad_in(x), dw = e.grad_in(weight), db = e.grad_in(bias);
      device::on(e.stream(), [&](auto& s) {
        kernels::short_convolution_backward(
            s,
            kernels::ShortConvolutionBackwardArgs<T>{
                args<T>(e), e.grad_out(y).ptr<T>(), dx ? dx.tensor.ptr<T>() : nullptr,
                dw ? dw.tensor.ptr<Accum<T>>() : nullptr, db ? db.tensor.ptr<Accum<T>>() : nullptr,
                dx.accumulate, dw.accumulate, db.accumulate});
      });
    });
  }
};

struct DeltaGates final : graph::Op {
  enum In { x, log_rate, bias };
  enum Out { gates };

  std::int64_t rows, heads;
  bool two;
  DType dtype;

  std::string_view kind() const override { return "delta_gates"; }
  graph::Saved saved() const override { return {.inputs = {x, log_rate, bias}}; }
  bool cheap() const override { return true; }
  std::int64_t workspace_bytes(graph::Phase phase) const override {
    return phase == graph::Phase::backward ? rows * 2 * heads * size_of(accum_type(dtype)) : 0;
  }
  std::int64_t scratch_bytes(graph::Phase phase, DType) const override {
    return phase == graph::Phase::backward
               ? kernels::column_sum_scratch(rows, heads, size_of(accum_type(dtype)))
               : 0;
  }
  template <class T>
  kernels::DeltaGatesArgs<T> args(const graph::Exec& e) const {
    return {rows,
            heads,
            two,
            e.in(x).template ptr<T>(),
            e.in(log_rate).template ptr<T>(),
            e.in(bias).template ptr<T>()};
  }
  void forward(graph::Exec& e) const override {
    with_float(dtype, [&]<class T>() {
      auto a = args<T>(e);
      a.gates = e.out(gates).ptr<Accum<T>>();
      device::on(e.stream(), [&](auto& s) { kernels::delta_gates(s, a); });
    });
  }
  void backward(graph::Exec& e) const override {
    with_float(dtype, [&]<class T>() {
      using W = Accum<T>;
      W* const terms = reinterpret_cast<W*>(e.workspace());
      const graph::GradSlot dx = e.grad_in(x);
      device::on(e.stream(), [&](auto& s) {
        kernels::delta_gates_backward(
            s, kernels::DeltaGatesBackwardArgs<T>{args<T>(e), e.grad_out(gates).ptr<W>(),
                                                  dx ? dx.tensor.ptr<T>() : nullptr, dx.accumulate,
                                                  terms});
        const auto add_up = [&](const graph::GradSlot& d, const W* from) {
          if (d)
            kernels::column_sum(s, kernels::ColumnSumArgs<W>{rows, heads, 2 * heads, from,
                                                             d.tensor.ptr<W>(), d.accumulate});
        };
        add_up(e.grad_in(log_rate), terms);
        add_up(e.grad_in(bias), terms + heads);
      });
    });
  }
};

struct GatedDelta final : graph::Op {
  enum In { qkv, gates, skip, segments, state };
  enum Out { y, borders };

  Rows rows;
  kernels::DeltaSizes sizes;
  DType dtype;
  bool skips, decodes;

  std::string_view kind() const override {
    return sizes.corrects ? decodes ? "continued_delta" : "gated_delta"
           : decodes      ? "continued_state_space"
                          : "state_space";
  }
  graph::Saved saved() const override {
    return decodes ? kNothing
                   : graph::Saved{.inputs = {qkv, gates, skip, segments}, .outputs = {borders}};
  }
  // Products with the state and, as half of their squares, within chunks.
  graph::Work work(graph::Phase phase) const override {
    const bool backward = phase == graph::Phase::backward;
    const std::int64_t n = rows.tokens(), chunk = kernels::kDeltaChunk;
    const auto times = [&](std::int64_t delta, std::int64_t space) {
      return sizes.corrects ? delta : space;
    };
    return {
        .products =
            {{n, sizes.values, sizes.keys, sizes.heads * (backward ? times(7, 4) : times(3, 2))},
             {n, sizes.values, chunk / 2, sizes.heads * (backward ? times(5, 2) : times(2, 1))},
             {n, chunk, sizes.keys, sizes.key_heads * (backward ? times(4, 2) : times(2, 1))}},
        .extra_elements = (backward ? 2 : 1) * rows.sequences * sizes.chunks(rows.sequence_length) *
                          sizes.heads * sizes.state()};
  }
  std::int64_t workspace_bytes(graph::Phase phase) const override {
    return phase == graph::Phase::backward && skips
               ? rows.tokens() * sizes.heads * size_of(accum_type(dtype))
               : 0;
  }
  std::int64_t scratch_bytes(graph::Phase phase, DType) const override {
    const bool backward = phase == graph::Phase::backward;
    const std::int64_t wide = size_of(accum_type(dtype)),
                       kept =
                           device::scratch_piece(rows.sequences * sizes.key_heads *
                                                 kernels::delta_elements(sizes, backward) * wide);
    return backward && skips
               ? std::max(kept, kernels::column_sum_scratch(rows.tokens(), sizes.heads, wide))
               : kept;
  }
  template <class T>
  kernels::DeltaInputs<T> inputs(const graph::Exec& e) const {
    return {rows.sequences,
            rows.sequence_length,
            sizes,
            e.in(qkv).template ptr<T>(),
            e.in(gates).template ptr<Accum<T>>(),
            skips ? e.in(skip).template ptr<T>() : nullptr,
            e.in(segments) ? e.in(segments).template ptr<std::int32_t>() : nullptr};
  }
  void forward(graph::Exec& e) const override {
    with_float(e.out(y).dtype, [&]<class T>() {
      using W = Accum<T>;
      device::on(e.stream(), [&](auto& s) {
        kernels::gated_delta(
            s, kernels::GatedDeltaArgs<T>{inputs<T>(e), e.out(y).ptr<T>(),
                                          decodes ? e.in(state).ptr<W>() : nullptr,
                                          decodes ? nullptr : e.out(borders).ptr<W>()});
      });
    });
  }
  void backward(graph::Exec& e) const override {
    TFM_CHECK(!decodes, "forward only");
    with_float(e.grad_out(y).dtype, [&]<class T>() {
      using W = Accum<T>;
      const graph::GradSlot dqkv = e.grad_in(qkv), dgates = e.grad_in(gates),
                            dskip = e.grad_in(skip);
      W* const terms = dskip ? reinterpret_cast<W*>(e.workspace()) : nullptr;
      device::on(e.stream(), [&](auto& s) {
        kernels::gated_delta_backward(
            s, kernels::GatedDeltaBackwardArgs<T>{
                   inputs<T>(e), e.out(borders).ptr<W>(), e.grad_out(y).ptr<T>(),
                   dqkv ? dqkv.tensor.ptr<T>() : nullptr, dgates ? dgates.tensor.ptr<W>() : nullptr,
                   terms, dqkv.accumulate, dgates.accumulate});
        if (dskip)
          kernels::column_sum(
              s, kernels::ColumnSumArgs<W>{rows.tokens(), sizes.heads, sizes.heads, terms,
                                           dskip.tensor.ptr<W>(), dskip.accumulate});
      });
    });
  }
};

struct GateOp final : graph::Op {
  enum In { x, z };
  enum Out { y };

  kernels::Gate function;

  std::string_view kind() const override { return "gate"; }
  graph::Saved saved() const override { return {.inputs = {x, z}}; }
  bool cheap() const override { return true; }
  void forward(graph::Exec& e) const override {
    with_float(e.out(y).dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) {
        kernels::gate(s, kernels::GateArgs<T>{e.out(y).elements(), function, e.in(x).ptr<T>(),
                                              e.in(z).ptr<T>(), e.out(y).ptr<T>()});
      });
    });
  }
  void backward(graph::Exec& e) const override {
    with_float(e.grad_out(y).dtype, [&]<class T>() {
      const graph::GradSlot dx = e.grad_in(x), dz = e.grad_in(z);
      device::on(e.stream(), [&](auto& s) {
        kernels::gate_backward(
            s, kernels::GateBackwardArgs<T>{
                   e.grad_out(y).elements(), function, e.in(x).ptr<T>(), e.in(z).ptr<T>(),
                   e.grad_out(y).ptr<T>(), dx ? dx.tensor.ptr<T>() : nullptr,
                   dz ? dz.tensor.ptr<T>() : nullptr, dx.accumulate, dz.accumulate});
      });
    });
  }
};

void check_rows(const graph::Recorder& r, graph::Value x, std::int64_t width, const Rows& rows) {
  TFM_CHECK(r.info(x).shape == (Shape{rows.tokens(), width}) && rows.share.ranks == 1,
            "rows of the gated delta rule are " + r.info(x).shape.str());
}

}  // namespace

graph::Value short_convolution(graph::Recorder& r, graph::Value x, graph::Value weight,
                               graph::Value bias, const Rows& rows, graph::Value segments,
                               graph::Value state) {
  const Shape weights = r.info(weight).shape;
  check_rows(r, x, weights[0], rows);
  TFM_CHECK(weights[1] <= kernels::kLongestConvolution, "a convolution of " + weights.str());
  auto op = std::make_unique<ShortConvolution>();
  op->rows = rows;
  op->cols = weights[0];
  op->kernel = weights[1];
  op->biased = static_cast<bool>(bias);
  op->decodes = static_cast<bool>(state);
  return r.apply(std::move(op), {x, weight, bias, segments, state}, {{r.info(x).shape, r.dtype()}});
}

graph::Value delta_gates(graph::Recorder& r, graph::Value x, graph::Value log_rate,
                         graph::Value bias) {
  auto op = std::make_unique<DeltaGates>();
  const Shape shape = r.info(x).shape;
  op->rows = shape[0];
  op->heads = r.info(log_rate).shape[0];
  op->two = shape[1] == 2 * op->heads;
  TFM_CHECK(op->two || shape[1] == op->heads, "rows of gates are " + shape.str());
  const Shape gates{shape[0], 2 * op->heads};
  op->dtype = r.dtype();
  return r.apply(std::move(op), {x, log_rate, bias}, {{gates, accum_type(r.dtype())}});
}

graph::Value gated_delta(graph::Recorder& r, graph::Value qkv, graph::Value gates,
                         graph::Value skip, const kernels::DeltaSizes& sizes, const Rows& rows,
                         graph::Value segments, graph::Value state) {
  check_rows(r, qkv, sizes.width(), rows);
  check_rows(r, gates, 2 * sizes.heads, rows);
  auto op = std::make_unique<GatedDelta>();
  op->rows = rows;
  op->sizes = sizes;
  op->dtype = r.dtype();
  op->skips = static_cast<bool>(skip);
  op->decodes = static_cast<bool>(state);
  const std::vector<graph::Value> inputs{qkv, gates, skip, segments, state};
  const graph::OutputSpec y{{rows.tokens(), sizes.heads * sizes.values}, r.dtype()},
      borders{{rows.sequences * sizes.chunks(rows.sequence_length), sizes.heads * sizes.state()},
              accum_type(r.dtype()),
              false};
  return state ? r.apply(std::move(op), inputs, {y}) : r.apply(std::move(op), inputs, {y, borders});
}

graph::Value gate(graph::Recorder& r, graph::Value x, graph::Value z, kernels::Gate kind) {
  TFM_CHECK(r.info(x).shape == r.info(z).shape, "a gate of " + r.info(z).shape.str());
  auto op = std::make_unique<GateOp>();
  op->function = kind;
  return r.apply(std::move(op), {x, z}, {{r.info(x).shape, r.dtype()}});
}

}  // namespace tfm::ops
