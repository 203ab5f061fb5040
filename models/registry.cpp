#include "models/registry.h"

#include "models/decoder.h"
#include "models/encoder.h"
#include "models/encoder_decoder.h"

namespace tfm::models {

std::unique_ptr<nn::Model> make_model(const config::Config& config, const comm::Mesh& mesh) {
  if (config.model.family == "decoder") return std::make_unique<Decoder>(config, mesh);
  if (config.model.family == "encoder") return std::make_unique<Encoder>(config, mesh);
  if (config.model.family == "encoder_decoder")
    return std::make_unique<EncoderDecoder>(config, mesh);
  throw Error(ExitCode::usage, "model.family '" + config.model.family +
                                   "' is not known; known: encoder, decoder, encoder_decoder");
}

}  // namespace tfm::models
