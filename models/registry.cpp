#include "models/registry.h"

#include "models/decoder.h"
#include "models/encoder.h"
#include "models/encoder_decoder.h"

namespace tfm::models {

std::unique_ptr<nn::Model> make_model(const config::Config& config, const comm::Mesh& mesh) {
  switch (config.model.family) {
    case config::Family::decoder:
      return std::make_unique<Decoder>(config, mesh);
    case config::Family::encoder:
      return std::make_unique<Encoder>(config, mesh);
    case config::Family::encoder_decoder:
      return std::make_unique<EncoderDecoder>(config, mesh);
    case config::Family::unset:
      break;
  }
  throw Error(ExitCode::usage,
              "model.family is not set; expected encoder, decoder or encoder_decoder");
}

}  // namespace tfm::models
