#include "inference/text_format.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "data/token_origin.h"
#include "huggingface/config.h"
#include "huggingface/sidecars.h"
#include "io/json.h"

namespace tfm::inference {

std::string directory_of(const config::DataConfig& data) {
  const auto counts = [](const std::string& tokenizer) {
    return !tokenizer.empty() && !tokenizer::is_bytes(tokenizer) &&
           !std::filesystem::path(tokenizer).is_absolute();
  };
  if (!counts(data.tokenizer) && !counts(data.source_tokenizer)) return {};
  std::error_code gone;
  return std::filesystem::current_path(gone).string();
}

std::string other_tokenizer(const std::string& step_dir, const tokenizer::Tokenizer& tokenizer,
                            const config::DataConfig& data) {
  if (huggingface::is_huggingface(step_dir)) return {};
  const std::string trained = checkpoint::CheckpointReader(step_dir).manifest().tokenizer;
  if (trained.empty() || trained == data::fingerprint_of_sides(tokenizer)) return {};
  return data.tokenizer_or_bytes() +
         (data.source_tokenizer.empty() ? "" : " with " + data.source_tokenizer) +
         " is not the tokenizer that " + step_dir +
         " was trained with: its ids mean something else";
}

std::string tokenizer_beside(const std::string& step_dir) {
  return (std::filesystem::canonical(step_dir).parent_path() / "tokenizer").string();
}

namespace {

TextFormat text_format(const nlohmann::json& config, const std::string& folder,
                       const tokenizer::Tokenizer& tokenizer) {
  TextFormat format;
  if (!config.is_null()) {
    const huggingface::GenerationRules rules = huggingface::generation_rules(config, folder);
    format = {.start_id = rules.start_id,
              .model_start = rules.model_start,
              .end_ids = rules.end_ids,
              .banned_ids = rules.banned_ids,
              .ignored = rules.others};
  }
  if (const auto end = tokenizer.target().document_end()) format.end_ids.push_back(*end);
  return format;
}

}  // namespace

TextFormat text_format(const std::string& dir, const tokenizer::Tokenizer& tokenizer) {
  if (huggingface::is_huggingface(dir)) {
    TextFormat format = text_format(huggingface::read_config(dir), dir, tokenizer);
    format.special_tokens = true;
    return format;
  }
  const checkpoint::Manifest manifest = checkpoint::CheckpointReader(dir).manifest();
  TextFormat format = text_format_of_run(manifest.extra, tokenizer_beside(dir), tokenizer);
  format.special_tokens = manifest.step == 0 &&
                          io::parse_json(manifest.extra, dir + "/manifest.json").contains("config");
  return format;
}

TextFormat text_format_of_run(const std::string& provenance, const std::string& folder,
                              const tokenizer::Tokenizer& tokenizer) {
  const nlohmann::json tree = io::parse_json(provenance, "the provenance of the weights");
  return text_format(tree.value("config", nlohmann::json()), folder, tokenizer);
}

}  // namespace tfm::inference
