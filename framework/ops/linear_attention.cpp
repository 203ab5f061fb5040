#include "ops/linear_attention.h"

#include "device/memory.h"

namespace tfm::ops {
namespace {

struct LinearAttention final : graph::Op {
  enum In { qkv, segments, state };
  enum Out { y, sums };

  Rows rows;
  kernels::LinearSizes sizes;
  bool decodes;

  std::string_view kind() const override {
    return decodes ? "continued_linear_attention" : "linear_attention";
  }
  graph::Saved saved() const override {
    if (decodes) return {};
    return {.inputs = {qkv, segments}, .outputs = {y, sums}};
  }
  // Products with the state and, causal, as half of their squares, within chunks.
  graph::Work work(graph::Phase phase) const override {
    const bool backward = phase == graph::Phase::backward;
    const std::int64_t n = rows.tokens(), chunk = sizes.causal ? 32 : 0;
    return {.products = {{n, sizes.size, sizes.size + 1, sizes.heads * (backward ? 5 : 2)},
                         {n, sizes.size, chunk, sizes.heads * (backward ? 7 : 3)}}};
  }
  std::int64_t scratch_bytes(graph::Phase, DType dtype) const override {
    return device::scratch_piece(rows.sequences * sizes.heads * kernels::linear_elements(sizes) *
                                 size_of(accum_type(dtype)));
  }
  template <class T>
  kernels::LinearAttentionArgs<T> args(const graph::Exec& e) const {
    using W = Accum<T>;
    return {rows.sequences,
            rows.sequence_length,
            sizes,
            e.in(qkv).template ptr<T>(),
            e.in(segments) ? e.in(segments).template ptr<std::int32_t>() : nullptr,
            e.out(y).template ptr<T>(),
            decodes ? nullptr : e.out(sums).template ptr<W>(),
            decodes ? e.in(state).template ptr<W>() : nullptr};
  }
  void forward(graph::Exec& e) const override {
    with_float(e.out(y).dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) { kernels::linear_attention(s, args<T>(e)); });
    });
  }
  void backward(graph::Exec& e) const override {
    TFM_CHECK(!decodes, "forward only");
    const graph::GradSlot d = e.grad_in(qkv);
    if (!d) return;
    with_float(e.grad_out(y).dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) {
        kernels::linear_attention_backward(
            s, kernels::LinearAttentionBackwardArgs<T>{args<T>(e), e.grad_out(y).ptr<T>(),
                                                       d.tensor.ptr<T>(), d.accumulate});
      });
    });
  }
};

}  // namespace

graph::Value linear_attention(graph::Recorder& r, graph::Value qkv,
                              const kernels::LinearSizes& sizes, const Rows& rows,
                              graph::Value segments, graph::Value state) {
  TFM_CHECK(r.info(qkv).shape == (Shape{rows.tokens(), 3 * sizes.width()}) &&
                rows.share.ranks == 1 && (sizes.causal || !state),
            "rows of linear attention are " + r.info(qkv).shape.str());
  auto op = std::make_unique<LinearAttention>();
  op->rows = rows;
  op->sizes = sizes;
  op->decodes = static_cast<bool>(state);
  const std::vector<graph::Value> inputs{qkv, segments, state};
  const graph::OutputSpec y{{rows.tokens(), sizes.width()}, r.dtype()},
      sums{{rows.tokens(), sizes.heads}, accum_type(r.dtype()), false};
  return state ? r.apply(std::move(op), inputs, {y}) : r.apply(std::move(op), inputs, {y, sums});
}

}  // namespace tfm::ops
