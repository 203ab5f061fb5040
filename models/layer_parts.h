#pragma once
// The parts of a layer, made from its configuration.
#include "config/config.h"
#include "nn/mixer.h"

namespace tfm::models {

// What a layer's parts need to know of its stack.
struct StackInfo {
  std::int64_t d_model = 0;
  bool causal = false;
  bool cross = false;  // has cross-attention
  std::int64_t layers = 0;
  bool biased_routers = false;  // config::RouterLossConfig::has_bias()
  config::LongRopeConfig longrope;
};

using MakeMixer = std::unique_ptr<nn::Mixer> (*)(nn::Context& c, const std::string& name,
                                                 const config::LayerConfig& layer,
                                                 const StackInfo& stack);
// A further value of model.attention.type, to be added before a configuration is read. `type` must
// live as long as the program.
void add_mixer(std::string_view type, MakeMixer make);
// Of the layer's attention.type.
std::unique_ptr<nn::Mixer> make_mixer(nn::Context& c, const std::string& name,
                                      const config::LayerConfig& layer, const StackInfo& stack);
std::unique_ptr<nn::Mixer> make_cross_attention(nn::Context& c, const std::string& name,
                                                const config::LayerConfig& layer,
                                                const StackInfo& stack);
std::unique_ptr<nn::Ffn> make_ffn(nn::Context& c, const std::string& name,
                                  const config::LayerConfig& layer, const StackInfo& stack);

nn::Norm::Options norm_of(const config::LayerConfig& layer);
kernels::Activation activation_of(config::Activation activation);

}  // namespace tfm::models
