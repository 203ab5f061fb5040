#include "ops/attention_map.h"

#include <cmath>
#include <cstdlib>
#include <limits>

#include "ops/attention.h"

namespace tfm::ops {

std::optional<AttentionNode> attention_node(const graph::Node& node) {
  using Op = Attention<float>;
  const auto* const op = dynamic_cast<const Op*>(node.op.get());
  if (!op) return std::nullopt;
  const auto in = [&](Op::In name) { return graph::Value{node.in[name]}; };
  return AttentionNode{
      &op->options,       op->batch,          in(Op::q),        in(Op::kv),
      in(Op::q_segments), in(Op::k_segments), in(Op::prefixes), in(Op::relative_bias),
      in(Op::sinks)};
}

namespace {

// The scores of the keys of one query; -infinity where it does not see one.
class Scores {
 public:
  Scores(const AttentionNode& node, const AttentionOperands& in)
      : o_(*node.options), in_(in), scores_(static_cast<std::size_t>(o_.keys)) {}

  // `row`: of the query, at position t of sequence b.
  std::span<const double> of(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t row) {
    const std::int64_t kv_head = h / (o_.heads / o_.kv_heads), D = o_.head_size;
    const float* const q = in_.q + row * in_.q_stride + h * D;
    for (std::int64_t s = 0; s < o_.keys; ++s) {
      scores_[s] = -std::numeric_limits<double>::infinity();
      if (!sees(b, t, s)) continue;
      const float* const k = in_.k + ((b * o_.keys + s) * o_.kv_heads + kv_head) * D;
      double sum = 0;
      for (std::int64_t d = 0; d < D; ++d) sum += static_cast<double>(q[d]) * k[d];
      sum *= o_.scale;
      if (o_.softcap > 0) sum = o_.softcap * std::tanh(sum / o_.softcap);
      scores_[s] = sum + bias(h, t, s);
    }
    return scores_;
  }

 private:
  bool sees(std::int64_t b, std::int64_t t, std::int64_t s) const {
    Visibility visible = o_.visible;
    if (in_.prefixes) visible.beyond.prefix = in_.prefixes[b];
    if (!visible.sees(t + o_.keys - o_.queries, s)) return false;
    if (!in_.k_segments) return true;
    const std::int32_t segment = in_.k_segments[b * o_.keys + s];
    return segment >= 0 && (!in_.q_segments || in_.q_segments[b * o_.queries + t] == segment);
  }
  double bias(std::int64_t h, std::int64_t t, std::int64_t s) const {
    if (in_.relative_bias) {
      const std::int32_t bucket = o_.buckets[s - t + o_.queries - 1];
      return in_.relative_bias[h * in_.buckets + bucket];
    }
    if (o_.alibi_slopes.empty()) return 0;
    return -o_.alibi_slopes[h] * static_cast<double>(std::abs(t + o_.keys - o_.queries - s));
  }

  const AttentionOptions& o_;
  const AttentionOperands& in_;
  std::vector<double> scores_;
};

}  // namespace

void attention_map(const AttentionNode& node, const AttentionOperands& in, const TakeWeights& f) {
  const AttentionOptions& o = *node.options;
  const Rows rows{node.batch, o.queries, o.share};
  std::vector<float> weights(static_cast<std::size_t>(o.keys));
  Scores scores(node, in);
  for (std::int64_t b = 0; b < node.batch; ++b)
    for (std::int64_t h = 0; h < o.heads; ++h)
      each_row(rows, b, 0, o.queries, [&](std::int64_t row, std::int64_t t) {
        const std::span<const double> of = scores.of(b, h, t, row);
        double most = in.sinks ? in.sinks[h] : -std::numeric_limits<double>::infinity();
        for (const double x : of) most = std::max(most, x);
        double sum = in.sinks ? std::exp(in.sinks[h] - most) : 0;
        for (const double x : of)
          if (std::isfinite(x)) sum += std::exp(x - most);
        for (std::size_t s = 0; s < of.size(); ++s)
          weights[s] = std::isfinite(of[s]) ? static_cast<float>(std::exp(of[s] - most) / sum) : 0;
        f(b, h, t, weights);
      });
}

}  // namespace tfm::ops
