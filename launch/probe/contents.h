#pragma once
// What tfm-probe can be asked for from the inside of a model, and the words that ask for it.
#include <map>
#include <string>
#include <vector>

#include "config/config.h"
#include "nn/model.h"

namespace tfm::launch {

inline constexpr std::string_view kAll = "all";  // the word for everything

struct Activation {
  std::string name;  // follows the names of parameters: "layers.3.ffn.hidden"
  std::int64_t length = 0, width = 0;
};
struct AttentionMap {
  std::string name;  // "attention.3"; of an encoder_decoder "attention.cross.3" and the like
  std::string node;  // of the recording: "layers.3.attention.attention"
  std::int64_t queries = 0, keys = 0;
  std::vector<std::int64_t> heads;  // in the order asked for; in Contents all
};

struct Asked {
  std::vector<Activation> activations;
  std::vector<AttentionMap> maps;
  bool empty() const { return activations.empty() && maps.empty(); }
};

struct Contents {
  std::vector<Activation> activations;
  std::vector<AttentionMap> maps;
  std::map<std::string, std::string> mixers;  // what layers without a map have, by its name

  // Of a forward pass over batches of this shape.
  Contents(const config::Config& config, const nn::BatchShape& shape);
  // `words`: names, in which * stands for a part of a component, or `all`. Error(usage) names the
  // nearest name.
  std::vector<Activation> activations_of(const std::vector<std::string>& words) const;
  // `words`: LAYER, LAYER:HEAD or `all`. Error(usage) for a layer or a head that is not there.
  std::vector<AttentionMap> maps_of(const std::vector<std::string>& words) const;
  // The activation of this name, for `option`.
  const Activation& activation(const std::string& option, const std::string& name) const;
};

// The layer of "decoder.layers.3.attention".
const config::LayerConfig& layer_of(const std::vector<std::vector<config::LayerConfig>>& stacks,
                                    const std::string& part);

// A line for each thing that a model can be asked for, with its shape in letters.
std::string list_of_contents(const config::Config& config);
// The same with numbers, for this batch.
std::string list_of_contents(const config::Config& config, const nn::BatchShape& shape);

}  // namespace tfm::launch
