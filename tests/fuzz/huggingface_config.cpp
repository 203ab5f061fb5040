// A config.json of Hugging Face: the model it describes, the tensors such a model has, and the file that an export writes.
#include "data/json_tree.h"
#include "fuzz.h"
#include "train/huggingface/config.h"
#include "train/huggingface/tensors.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tfm;
  return fuzz::survives([&] {
    const std::string path = fuzz::put("config.json", fuzz::text_of(data, size)), dir = path.substr(0, path.rfind('/'));
    const ModelConfig model = model_of_huggingface(dir);
    exchanged_tensors(model, huggingface_type(model));
    fuzz::put("config.json", huggingface_config(model, std::nullopt, read_json_file(path, 1 << 24).dump()));
    model_of_huggingface(dir);
  });
}
