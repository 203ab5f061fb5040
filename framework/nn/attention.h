#pragma once
// Softmax attention within a sequence and to a source (Vaswani et al. 2017, 3.2). Heads are sharded
// over tensor ranks.
#include "nn/mixer.h"
#include "nn/positions.h"

namespace tfm::nn {

struct AttentionOptions {
  std::int64_t width = 0, heads = 0, kv_heads = 0, head_size = 0;
  bool qkv_bias = true, bias = true;
  std::optional<HeadNorm::Options> qk_norm;  // before rotary positions
  bool sinks = false;                        // see kernels/attention_sinks.h
  double scale = 1, softcap = 0, dropout = 0, output_std = 0.02;
};

// They are those of attention that sees all keys of these rows, without a bias.
ops::AttentionOptions options_on_rank(const Context& c, const AttentionOptions& o,
                                      const Rows& queries, const Rows& keys, bool training,
                                      bool right_padded);

class SelfAttention final : public Mixer {
 public:
  struct Options : AttentionOptions {
    Visibility visible = Visibility::causal();
    Rotary rotary;
    bool alibi = false, relative = false;  // relative: adds LayerContext::relative_bias
    bool output_gate = false;  // sigmoids of a projection of x multiply the outputs of heads
    // So many first positions see all by projections of their own (Beltagy et al. 2020, 3.2).
    std::int64_t own_projections = 0;
    bool prefix = false;  // positions of LayerContext::prefixes, or of a prompt, see each other
  };
  SelfAttention(Context& c, const std::string& name, Options options);
  graph::Value record(graph::Recorder& r, graph::Value x, const LayerContext& c) const override;
  // A cache of keys and values.
  std::vector<StateSpec> states() const override;
  graph::Value record_decode(graph::Recorder& r, graph::Value x, const LayerContext& c,
                             std::span<const graph::Value> states) const override;

 private:
  ops::AttentionOptions op_options(const LayerContext& c, const Visibility& visible) const;
  // (tokens, (H + 2 KV) D) with norms and rotary positions, of sequences of at most `length`; x is
  // inside the tensor-parallel region.
  graph::Value queries_keys_values(graph::Recorder& r, const Linear& projections, graph::Value x,
                                   const Rows& rows, std::int64_t length) const;
  // What the queries of some positions look at, zeros elsewhere.
  graph::Value attend(graph::Recorder& r, const Linear& projections, const Visibility& visible,
                      graph::Value x, const LayerContext& c) const;
  // What leaves the layer: of x inside the region, and y of the heads.
  graph::Value gated_output(graph::Recorder& r, graph::Value x, graph::Value y,
                            const Rows& rows) const;

  Context context_;
  std::string name_;
  Options options_;
  Linear qkv_;
  std::optional<Linear> global_;
  std::optional<HeadNorm> norm_;
  int sinks_;
  std::optional<Linear> gate_;
  Linear output_;
};

// Queries from a sequence; keys and values from LayerContext::source.
class CrossAttention final : public Mixer {
 public:
  struct Options : AttentionOptions {
    std::int64_t encoder_width = 0;
  };
  CrossAttention(Context& c, const std::string& name, Options options);
  graph::Value record(graph::Recorder& r, graph::Value x, const LayerContext& c) const override;
  // The keys and values of the source.
  std::vector<StateSpec> states() const override;
  // The new tokens of all beams of a source are its queries.
  graph::Value record_decode(graph::Recorder& r, graph::Value x, const LayerContext& c,
                             std::span<const graph::Value> states) const override;
  std::vector<graph::Value> record_source(graph::Recorder& r,
                                          graph::Value encoder_states) const override;

 private:
  graph::Value keys_values(graph::Recorder& r, graph::Value encoder_states) const;
  graph::Value attend(graph::Recorder& r, graph::Value x, graph::Value keys_values,
                      const LayerContext& c) const;

  Context context_;
  std::string name_;
  Options options_;
  Linear query_, kv_;
  std::optional<HeadNorm> query_norm_, key_norm_;
  int sinks_;
  Linear output_;
};

}  // namespace tfm::nn
