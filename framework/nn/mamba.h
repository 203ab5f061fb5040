#pragma once
// The state space of Mamba-2 as a mixer (Dao and Gu 2024, "Transformers are SSMs", section 7): a
// state of each head decays by steps that the input chooses, and what is read from it is gated,
// then normalized over the heads that share B and C. C, B and x are queries, keys and values here,
// as in linear attention.
#include "nn/recurrence.h"

namespace tfm::nn {

class Mamba final : public Recurrence {
 public:
  // The bias of queries, keys and values is that of steps and gates, too.
  Mamba(Context& c, const std::string& name, Options options);

 private:
  graph::Value mix(graph::Recorder& r, graph::Value x, const LayerContext& c,
                   States states) const override;
  const Linear& output() const override { return output_; }

  int convolution_bias_;
  Linear steps_;
  int log_rate_, step_bias_, skip_;
  Linear output_gate_;
  int norm_;  // (H Dv)
  Linear output_;
};

}  // namespace tfm::nn
