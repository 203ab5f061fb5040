#pragma once
// How the texts that a model was trained on begin and end.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/data_config.h"
#include "tokenizer/tokenizer.h"

namespace tfm::inference {

struct TextFormat {
  // Whether the tokenizer's special tokens enclose a text: true for models from Hugging Face, false
  // for those trained here, on the tokens of texts alone.
  bool special_tokens = false;
  // Otherwise, the id before each text that the model was trained on (data.add_begin).
  std::optional<std::int32_t> begin = std::nullopt;
  // Begins a translation, by such a model's generation settings, of a model that begins targets
  // with model_start; -1: what begins targets.
  std::int64_t start_id = -1, model_start = -1;
  // Each ends a text: the tokenizer's end, and eos_token_id of a model from Hugging Face.
  std::vector<std::int32_t> end_ids = {};
  // From such a model's generation settings: ids that no translation has, and settings that are not
  // obeyed.
  std::vector<std::int32_t> banned_ids = {};
  std::vector<std::string> ignored = {};
  std::vector<std::int32_t> encode(const tokenizer::Tokenizer& tokenizer,
                                   std::string_view text) const {
    if (special_tokens) return tokenizer.encode_with_specials(text);
    std::vector<std::int32_t> ids = tokenizer.encode(text);
    if (begin) ids.insert(ids.begin(), *begin);
    return ids;
  }
};

// `dir`: a Hugging Face directory or one checkpoint.
TextFormat text_format(const std::string& dir, const tokenizer::Tokenizer& tokenizer);
// The format of a run: `provenance` is what its checkpoints record about its first weights,
// `folder` has that model's generation settings.
TextFormat text_format_of_run(const std::string& provenance, const std::string& folder,
                              const tokenizer::Tokenizer& tokenizer);

// The working directory where a tokenizer of `data` is a path that counts from it, else empty: what
// checkpoints record.
std::string directory_of(const config::DataConfig& data);
// What is wrong with the tokenizer of `data` for the model of `step_dir`; empty: nothing that is
// known.
std::string other_tokenizer(const std::string& step_dir, const tokenizer::Tokenizer& tokenizer,
                            const config::DataConfig& data);
// The folder in which tfm-convert keeps the tokenizer of an imported checkpoint.
std::string tokenizer_beside(const std::string& step_dir);

}  // namespace tfm::inference
