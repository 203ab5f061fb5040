#include "inference/text_format.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "huggingface/config.h"
#include "huggingface/sidecars.h"
#include "io/json.h"

namespace tfm::inference {

std::string tokenizer_beside(const std::string& step_dir) {
  return (std::filesystem::canonical(step_dir).parent_path() / "tokenizer").string();
}

TextFormat text_format(const std::string& dir, const tokenizer::Tokenizer& tokenizer) {
  TextFormat format;
  if (huggingface::is_huggingface(dir)) {
    format = {true, huggingface::end_ids(huggingface::read_config(dir), dir)};
  } else {
    const checkpoint::Manifest manifest = checkpoint::CheckpointReader(dir).manifest();
    const auto origin = io::parse_json(manifest.extra, dir + "/manifest.json (extra)");
    if (origin.contains("config"))
      format = {manifest.step == 0, huggingface::end_ids(origin["config"], tokenizer_beside(dir))};
  }
  auto end = tokenizer.end_of_document();
  if (!end) end = tokenizer.special_ids().end;
  if (end) format.end_ids.push_back(*end);
  return format;
}

}  // namespace tfm::inference
