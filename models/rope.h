#pragma once
// Rotary positions (Su et al. 2021) of a layer, and how they are scaled to longer sequences.
#include "config/config.h"
#include "nn/positions.h"

namespace tfm::models {

// Of the part `rope.fraction` of `columns` columns. Scaling: linear (Chen et al. 2023), with
// another base (ntk: bloc97 2023), Llama 3's (Grattafiori et al. 2024), YaRN (Peng et al. 2024),
// LongRoPE (Ding et al. 2024). Empty if the layer has other positions.
nn::Rotary rotary_of(const config::LayerConfig& layer, const config::LongRopeConfig& long_rope,
                     std::int64_t columns);
// What scores of latent attention are multiplied by (DeepSeek-AI 2024a): YaRN's factor by
// mscale_all_dim, squared.
double latent_score_factor(const config::RopeConfig& rope);

}  // namespace tfm::models
