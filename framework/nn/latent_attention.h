#pragma once
// Latent attention (DeepSeek-AI 2024a, "DeepSeek-V2", section 2.1): queries, and keys and values
// together, are made from rows of low rank; rotary positions turn columns of their own, of which
// keys have one for all heads. Heads are sharded over tensor ranks, rows of low rank are whole on
// each. A generation keeps a latent row and a key for each position, not keys and values of heads.
#include "nn/attention.h"
#include "ops/latent.h"

namespace tfm::nn {

class LatentAttention final : public Mixer {
 public:
  struct Options : AttentionOptions {  // head_size: of queries and keys
    Visibility visible = Visibility::causal();
    std::int64_t query_rank = 0;  // 0: queries are made from x
    std::int64_t rank = 0;        // L, of keys and values
    std::int64_t turning = 0;     // columns of a head with rotary positions, its last ones
    std::int64_t values = 0;      // columns of a head's value
    Rotary rotary;                // of these
  };
  LatentAttention(Context& c, const std::string& name, Options options);
  graph::Value record(graph::Recorder& r, graph::Value x, const LayerContext& c) const override;
  // A cache of latent rows and shared keys.
  std::vector<StateSpec> states() const override;
  graph::Value record_decode(graph::Recorder& r, graph::Value x, const LayerContext& c,
                             std::span<const graph::Value> states) const override;

 private:
  struct Projections {
    graph::Value q, latent, shared;  // inside the tensor-parallel region
  };
  Projections project(graph::Recorder& r, graph::Value x) const;
  // Of sequences of at most `length` positions.
  ops::LatentOptions latent_options(const Rows& rows, std::int64_t length) const;

  Context context_;
  std::string name_;
  Options options_;
  std::optional<Linear> query_down_;
  std::optional<Norm> query_norm_;
  Linear query_, down_;
  Norm norm_;
  Linear shared_;
  int up_;  // (H (P + V), L)
  Linear output_;
};

}  // namespace tfm::nn
