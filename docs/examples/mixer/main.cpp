// tfm with a mixer of its own: the mean of all tokens so far (Zhang, Xiong and Su, "Accelerating
// Neural Transformer via an Average Attention Network", 2018), for decoders on CPUs.
#include "launch/programs.h"
#include "models/layer_parts.h"

namespace {

using namespace tfm;

// y[t] = (x[0] + ... + x[t]) / (t + 1) in each sequence.
struct RunningMean final : graph::Op {
  enum In { x, sum };  // sum: that of the tokens before x in a generation, which x is added to
  enum Out { y };
  Rows rows;
  std::int64_t cols;

  std::string_view kind() const override { return "running_mean"; }
  graph::Saved saved() const override { return {}; }
  void forward(graph::Exec& e) const override {
    with_float(e.out(y).dtype, [&]<class T>() {
      for (std::int64_t b = 0; b < rows.sequences; ++b)
        for (std::int64_t c = 0; c < cols; ++c) {
          T* const kept = e.in(sum) ? e.in(sum).ptr<T>() + b * cols + c : nullptr;
          Accum<T> total = kept ? static_cast<Accum<T>>(*kept) : 0;
          for (std::int64_t t = 0; t < rows.sequence_length; ++t) {
            const std::int64_t at = (b * rows.sequence_length + t) * cols + c;
            total += static_cast<Accum<T>>(e.in(x).ptr<T>()[at]);
            const auto count = static_cast<Accum<T>>(e.state().first_position + t + 1);
            e.out(y).ptr<T>()[at] = static_cast<T>(total / count);
          }
          if (kept) *kept = static_cast<T>(total);
        }
    });
  }
  void backward(graph::Exec& e) const override {
    const graph::GradSlot d = e.grad_in(x);
    with_float(e.grad_out(y).dtype, [&]<class T>() {
      for (std::int64_t b = 0; b < rows.sequences; ++b)
        for (std::int64_t c = 0; c < cols; ++c) {
          Accum<T> total = 0;
          for (std::int64_t t = rows.sequence_length; t-- > 0;) {
            const std::int64_t at = (b * rows.sequence_length + t) * cols + c;
            T& dx = d.tensor.ptr<T>()[at];
            total +=
                static_cast<Accum<T>>(e.grad_out(y).ptr<T>()[at]) / static_cast<Accum<T>>(t + 1);
            dx = static_cast<T>(total + (d.accumulate ? static_cast<Accum<T>>(dx) : 0));
          }
        }
    });
  }
};

// Tensor ranks share out the columns.
class AverageAttention final : public nn::Mixer {
 public:
  AverageAttention(nn::Context& c, const std::string& name, std::int64_t width)
      : context_(c),
        cols_(div_exact(width, c.shards)),
        value_(c, {{name + ".value", width}}, width, {.placement = nn::Placement::shard_rows}),
        output_(c, {{name + ".output", width}}, width,
                {.placement = nn::Placement::shard_columns}) {}

  graph::Value record(graph::Recorder& r, graph::Value x,
                      const nn::LayerContext& c) const override {
    if (c.rows.share.ranks > 1)
      throw Error(ExitCode::usage, "attention.type average needs parallel.context 1");
    return mixed(r, x, c, {});
  }
  std::vector<nn::StateSpec> states() const override {
    return {{nn::StateSpec::Kind::fixed, cols_}};
  }
  graph::Value record_decode(graph::Recorder& r, graph::Value x, const nn::LayerContext& c,
                             std::span<const graph::Value> states) const override {
    return mixed(r, x, c, states.front());
  }

 private:
  graph::Value mixed(graph::Recorder& r, graph::Value x, const nn::LayerContext& c,
                     graph::Value sum) const {
    auto op = std::make_unique<RunningMean>();
    op->rows = c.rows, op->cols = cols_;
    const graph::Value v = value_(r, nn::enter_tp_region(r, context_, x));
    const graph::Value y = r.apply(std::move(op), {v, sum}, {{r.info(v).shape, r.dtype()}});
    return nn::leave_tp_region(r, context_, output_(r, y), output_.bias(r));
  }
  nn::Context context_;
  std::int64_t cols_;
  nn::Linear value_, output_;
};

}  // namespace

int main(int argc, char** argv) {
  models::add_mixer("average", [](nn::Context& c, const std::string& name,
                                  const config::LayerConfig&, const models::StackInfo& stack) {
    if (!stack.causal) throw Error(ExitCode::usage, "attention.type average is for decoders");
    return std::unique_ptr<nn::Mixer>(new AverageAttention(c, name, stack.d_model));
  });
  return launch::main_of(argc, argv);
}
