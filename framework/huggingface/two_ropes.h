#pragma once
// Rotary positions of layers with a window of attention, and other ones of the layers without.
#include "huggingface/architecture.h"

namespace tfm::huggingface {

// The members of config.json that say theta where rope_parameters does not, and its values where
// they do not.
struct Thetas {
  const char *local, *global;
  double local_value, global_value;
};
// Reads them into the kinds that have windows already, and the others. A rope_scaling is that of
// layers without a window.
void read_two_ropes(config::ModelConfig& m, const io::JsonNode& c, const Thetas& thetas);
// Members of kinds of layers that the model does not have are kept.
void write_two_ropes(Json& j, const config::ModelConfig& m, const Thetas& thetas);
Needs two_ropes(const config::ModelConfig& m);

}  // namespace tfm::huggingface
