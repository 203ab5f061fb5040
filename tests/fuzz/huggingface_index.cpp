// A model.safetensors.index.json beside the two shards of a small GPT-2, all of whose parts are
// read. What follows a zero byte is the header of the second shard and, after another one, its
// data.
#include "fuzz.h"
#include "huggingface/config.h"
#include "huggingface/weights.h"
#include "io/safetensors.h"

namespace {

constexpr const char* kConfig =
    R"({"model_type": "gpt2", "vocab_size": 3, "n_embd": 2, "n_layer": 1, "n_head": 1, "n_inner": 2, "n_positions": 2})";

// Writes config.json and the shards model-00001-of-00002.safetensors and
// model-00002-of-00002.safetensors; gives their folder.
std::string make_model() {
  using namespace tfm;
  const std::string path = fuzz::put("config.json", kConfig), dir = path.substr(0, path.rfind('/'));
  const config::ModelConfig model = huggingface::model_of_huggingface(dir);
  std::vector<io::TensorEntry> shards[2];
  for (const huggingface::ExchangedTensor& t : huggingface::exchanged_tensors(model, "gpt2"))
    shards[t.name.find(".h.") != t.name.npos].push_back({t.name, "F32", t.shape});
  for (int s = 0; s < 2; ++s) {
    io::SafetensorsWriter writer(
        dir + "/model-0000" + std::to_string(s + 1) + "-of-00002.safetensors", shards[s]);
    for (const io::TensorEntry& e : shards[s]) {
      std::int64_t n = 1;
      for (std::int64_t d : e.shape) n *= d;
      writer.write(std::span<const float>(std::vector<float>(static_cast<std::size_t>(n), 0.5f)));
    }
    writer.finish();
  }
  return dir;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tfm;
  static const std::string dir = make_model();
  return fuzz::survives([&] {
    const std::string_view text = fuzz::text_of(data, size),
                           index = text.substr(0, text.find('\0'));
    fuzz::put("model.safetensors.index.json", index);
    if (index.size() < size)
      fuzz::put("second", fuzz::safetensors_of(text.substr(index.size() + 1)));
    const huggingface::HuggingFaceModel model(dir);
    for (const huggingface::ExchangedTensor& t :
         huggingface::exchanged_tensors(model.model(), model.type()))
      for (const std::string& part : t.parts) model.part(part);
    model.provenance();
    model.keep_companions(dir + "/kept");
  });
}
