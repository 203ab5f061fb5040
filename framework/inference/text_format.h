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
  std::vector<std::int32_t> encode(const tokenizer::Tokenizer& tokenizer,
                                   std::string_view text) const {
    return special_tokens ? tokenizer.encode_with_specials(text) : tokenizer.encode(text);
  }
};

// `dir`: a Hugging Face directory or one checkpoint.
TextFormat text_format(const std::string& dir, const tokenizer::Tokenizer& tokenizer);

// Where tfm-convert keeps the tokenizer of an imported checkpoint.
std::string tokenizer_beside(const std::string& step_dir);

}  // namespace tfm::inference
