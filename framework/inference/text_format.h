#pragma once
// How the texts that a model was trained on begin and end.
#include <cstdint>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace tfm::inference {

struct TextFormat {
  // Whether the tokenizer's special tokens go around a text: so for models from Hugging Face, not
  // for those that were trained on the tokens of texts alone.
  bool special_tokens = false;
  std::vector<std::int32_t> end_ids = {};  // each ends a text: the tokenizer's, and eos_token_id of
                                           // a model from Hugging Face
  // What that model's files say besides: ids that no translation has, and what is not obeyed.
  std::vector<std::int32_t> banned_ids = {};
  std::vector<std::string> ignored = {};
  std::vector<std::int32_t> encode(const tokenizer::Tokenizer& tokenizer,
                                   std::string_view text) const {
    return special_tokens ? tokenizer.encode_with_specials(text) : tokenizer.encode(text);
  }
};

// `dir`: a Hugging Face directory or one checkpoint.
TextFormat text_format(const std::string& dir, const tokenizer::Tokenizer& tokenizer);
// Of a run, by the origin of its weights that its checkpoints keep and the folder beside these.
TextFormat text_format_of_run(const std::string& origin, const std::string& folder,
                              const tokenizer::Tokenizer& tokenizer);

// Where tfm-convert keeps the tokenizer of an imported checkpoint.
std::string tokenizer_beside(const std::string& step_dir);

}  // namespace tfm::inference
