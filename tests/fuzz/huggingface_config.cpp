// A config.json of Hugging Face: the model it describes, the tensors such a model has, and the file
// that an export writes.
#include <nlohmann/json.hpp>

#include "fuzz.h"
#include "huggingface/config.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tfm;
  return fuzz::survives([&] {
    const std::string path = fuzz::put("config.json", fuzz::text_of(data, size)),
                      dir = path.substr(0, path.rfind('/'));
    const auto nothing = [](const std::string&) { return false; };
    const huggingface::Json config = huggingface::read_config(dir);
    const config::ModelConfig model = huggingface::model_of({config, path}, nothing);
    const std::string written = huggingface::huggingface_config(model, std::nullopt, config.dump());
    huggingface::architecture_for(model, huggingface::model_type(written)).exchanged(model);
    huggingface::model_of({huggingface::Json::parse(written), path}, nothing);
  });
}
