#include "models/registry.h"

#include "models/decoder.h"

namespace tfm {

std::unique_ptr<Model> make_model(const Config& config, const Mesh& mesh) {
  if (config.model.family == "decoder") return std::make_unique<Decoder>(config, mesh);
  throw Error(ExitCode::usage, "model.family '" + config.model.family + "' is not known; known: decoder");
}

}  // namespace tfm
