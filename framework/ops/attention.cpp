#include "kernels/attention.h"

#include "ops/ops.h"

namespace tfm::ops {
namespace {

struct Attention final : Op {
  std::int64_t rows;
  AttentionOptions options;
  std::vector<float> slopes32;
  std::uint32_t stream;

  std::string_view kind() const override { return "attention"; }
  Saved saved() const override { return {.inputs = 0b1, .outputs = 0b11}; }
  // The causal half counted once: scores and weighted sum, 2 * 2 * T^2 / 2 * D for every head.
  double matmul_flops() const override {
    return 4.0 * rows * options.sequence_length * options.heads * options.head_size / (options.causal ? 2 : 1);
  }

  template <class T> const T* slopes() const {
    if (options.alibi_slopes.empty()) return nullptr;
    if constexpr (std::is_same_v<T, double>) return options.alibi_slopes.data();
    else return slopes32.data();
  }
  template <class T> kernels::AttentionArgs<T> args(const Exec& e) const {
    const std::int64_t D = options.head_size, width = (options.heads + 2 * options.kv_heads) * D;
    const T* qkv = e.in(0).ptr<T>();
    const auto& st = e.state();
    return {.batch = rows / options.sequence_length, .heads = options.heads, .kv_heads = options.kv_heads,
            .queries = options.sequence_length, .keys = options.sequence_length, .head_size = D,
            .q = qkv, .k = qkv + options.heads * D, .v = qkv + (options.heads + options.kv_heads) * D,
            .q_stride = width, .kv_stride = width, .out = e.out(0).ptr<T>(), .out_stride = options.heads * D,
            .lse = e.out(1).ptr<T>(), .scale = T(options.scale), .causal = options.causal, .slopes = slopes<T>(),
            .dropout = {static_cast<float>(options.dropout), {st.seed, Purpose::dropout, stream, st.step}},
            .sequence_offset = st.first_sequence, .head_offset = options.head_offset, .heads_total = options.heads_total};
  }
  void forward(Exec& e) const override {
    with_float(e.out(0).dtype, [&]<class T>() { on(e.stream(), [&](auto& s) { kernels::attention(s, args<T>(e)); }); });
  }
  void backward(Exec& e) const override {
    with_float(e.grad_out(0).dtype, [&]<class T>() {
      const GradSlot d = e.grad_in(0);
      TFM_CHECK(!d.accumulate, "the gradient of qkv has one writer");
      T* dq = d.tensor.ptr<T>();
      on(e.stream(), [&](auto& s) {
        kernels::attention_backward(
            s, kernels::AttentionBackwardArgs<T>{args<T>(e), e.grad_out(0).ptr<T>(), dq, dq + options.heads * options.head_size,
                                                 dq + (options.heads + options.kv_heads) * options.head_size});
      });
    });
  }
};

}  // namespace

Value attention(Recorder& r, Value qkv, AttentionOptions options) {
  auto op = std::make_unique<Attention>();
  op->rows = r.info(qkv).shape[0];
  op->slopes32.assign(options.alibi_slopes.begin(), options.alibi_slopes.end());
  op->stream = stream_of(r.qualified("attention.dropout"));
  const std::int64_t N = op->rows, H = options.heads, D = options.head_size;
  TFM_CHECK(r.info(qkv).shape[1] == (H + 2 * options.kv_heads) * D, "qkv is " + r.info(qkv).shape.str());
  TFM_CHECK(N % options.sequence_length == 0, "attention needs whole sequences");
  op->options = std::move(options);
  return r.apply(std::move(op), {qkv}, {{{N, H * D}, r.real()}, {{N, H}, r.real(), false}});
}

}  // namespace tfm::ops
