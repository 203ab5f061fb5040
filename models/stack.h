#pragma once
// A stack of layers, each made from a configuration of its own.
#include <optional>

#include "models/layer_parts.h"
#include "models/stages.h"
#include "nn/model.h"

namespace tfm::models {

// The encoder output that the layers of a decoder read.
struct EncoderOutput {
  graph::Value hidden;  // (B S, C), outside the tensor-parallel region
  nn::Source source;    // its `states` are `hidden` inside the region, on stages that read it
};

class Stack {
 public:
  // Layers that `config` has from `first` on among the layers of all stacks. `cross`: with
  // cross-attention.
  Stack(nn::Context& c, const Stages& stages, const config::ModelConfig& config,
        const std::string& prefix, std::int64_t first,
        const std::vector<config::LayerConfig>& layers, bool causal, bool cross);
  // x is on the stage of the first layer, the result on that of the last one, both outside the
  // tensor-parallel region. `context`: of the mixers.
  graph::Value operator()(graph::Recorder& r, Relay& relay, graph::Value x,
                          nn::LayerContext context, EncoderOutput* encoder_output = nullptr) const;
  int first_stage() const { return stages_.of(first_); }
  bool here() const { return stages_.has(first_, std::ssize(layers_)); }
  // One step of generation for new tokens; adds the states to `rec`.
  graph::Value decode(nn::Recording& rec, graph::Value x, const nn::Source* source = nullptr) const;
  // Adds the states of the source to `rec`.
  void record_source(nn::Recording& rec, graph::Value encoder_states) const;

 private:
  // The norms of a sublayer; `output` is that of its result, where another stands before it.
  struct Norms {
    std::optional<nn::Norm> norm, output;
  };
  struct Layer {
    config::LayerConfig config;
    Norms attention_norms;
    std::unique_ptr<nn::Mixer> attention;
    std::optional<Norms> cross_norms;
    std::unique_ptr<nn::Mixer> cross;
    Norms ffn_norms;
    std::unique_ptr<nn::Ffn> ffn;
  };
  // How a mixer is recorded: for a whole sequence, or for new tokens.
  using RecordMixer = std::function<graph::Value(const nn::Mixer&, graph::Value)>;

  Layer make_layer(nn::Context& c, const std::string& name, const config::LayerConfig& layer,
                   const StackInfo& info) const;
  void add_relative_bias(graph::Recorder& r, nn::LayerContext& context, std::int64_t queries,
                         std::int64_t keys) const;
  graph::Value record_layer(graph::Recorder& r, std::size_t l, graph::Value x,
                            const nn::LayerContext& context, const RecordMixer& record) const;

  nn::Context context_;
  Stages stages_;
  std::int64_t d_model_;
  double output_dropout_;
  config::RelativeConfig relative_;
  std::int64_t first_;
  bool causal_;
  int relative_bias_ = -1;
  std::vector<Layer> layers_;
  std::optional<nn::Norm> final_norm_;
};

}  // namespace tfm::models
