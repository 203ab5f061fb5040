#pragma once
// The gated delta rule as a mixer (Yang et al. 2025, "Gated Delta Networks", section 3.4, and
// Qwen3-Next): a state of each head decays and is corrected towards the values, and what is read
// from it is normalized and gated.
#include "nn/recurrence.h"

namespace tfm::nn {

class GatedDelta final : public Recurrence {
 public:
  GatedDelta(Context& c, const std::string& name, Options options);

 private:
  graph::Value mix(graph::Recorder& r, graph::Value x, const LayerContext& c,
                   States states) const override;
  const Linear& output() const override { return output_; }

  Linear gates_;
  int log_rate_, gate_bias_;
  Linear output_gate_;
  HeadNorm norm_;
  Linear output_;
};

}  // namespace tfm::nn
