#pragma once
// Normalizers of tokenizer.json (Hugging Face `tokenizers` 0.2x), which change a text before it is
// split.
#include <cstddef>
#include <memory>
#include <string>

#include "io/json.h"

namespace tfm::tokenizer {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(std::string& text) const = 0;  // `text`: well-formed UTF-8
  // The same. Returns how many of the text's first bytes stand for what its first `lead` bytes
  // stood for, by the library's alignment (Piece::lead).
  virtual std::size_t apply_to(std::string& text, std::size_t lead) const;
  // Whether a text may be cut between an ASCII letter or digit and a following space, and its parts
  // be normalized separately.
  virtual bool allows_cuts() const { return true; }
};

// Reads Sequence, BertNormalizer, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Replace,
// Prepend and Precompiled. Error(input) for any other.
std::unique_ptr<Normalizer> read_normalizer(const io::JsonNode& node);

}  // namespace tfm::tokenizer
