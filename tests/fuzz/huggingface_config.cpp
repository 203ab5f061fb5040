// A config.json of Hugging Face: the model it describes, the tensors such a model has, and the file
// that an export writes.
#include "fuzz.h"
#include "huggingface/config.h"
#include "huggingface/tensors.h"
#include "io/json.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tfm;
  return fuzz::survives([&] {
    const std::string path = fuzz::put("config.json", fuzz::text_of(data, size)),
                      dir = path.substr(0, path.rfind('/'));
    const config::ModelConfig model = huggingface::model_of_huggingface(dir);
    huggingface::exchanged_tensors(model, huggingface::huggingface_type(model));
    fuzz::put("config.json", huggingface::huggingface_config(
                                 model, std::nullopt, io::read_json_file(path, 1 << 24).dump()));
    huggingface::model_of_huggingface(dir);
  });
}
