// A model.safetensors.index.json beside the two shards of a small GPT-2, all of whose parts are
// read. What follows a zero byte is the header of the second shard and, after another one, its
// data.
#include <nlohmann/json.hpp>

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
  const huggingface::Json config = huggingface::read_config(dir);
  const io::JsonNode node(config, path);
  const config::ModelConfig model =
      huggingface::model_of(node, [](const std::string&) { return false; });
  std::vector<io::TensorEntry> shards[2];
  for (const huggingface::ExchangedTensor& t : huggingface::architecture_of(node).exchanged(model))
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
    for (const huggingface::ExchangedTensor& t : model.architecture().exchanged(model.model())) {
      std::int64_t elements = 1;
      for (std::int64_t d : t.shape) elements *= d;
      const std::int64_t rows = elements / static_cast<std::int64_t>(t.parts.size());
      std::vector<float> values(static_cast<std::size_t>(rows));
      for (const std::string& part : t.parts)
        model.read(part, {.rows = rows, .last_row = rows}, values.data());
    }
    model.check_copies();
    model.provenance();
    model.keep_sidecars(dir + "/kept");
  });
}
