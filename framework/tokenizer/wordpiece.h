#pragma once
// WordPiece as BERT uses it: from the left, always the longest token that fits; tokens inside a
// word carry a prefix.
#include <string>

#include "text/trie.h"
#include "tokenizer/token_model.h"

namespace tfm::tokenizer {

class WordPieceModel final : public TokenModel {
 public:
  // A word of more than max_code_points, or with a part that no token fits, becomes `unknown`.
  WordPieceModel(const VocabEntries& entries, const std::string& prefix, std::int32_t unknown,
                 std::size_t max_code_points);
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const override;
  std::string_view continuation() const override { return prefix_; }

 private:
  text::Trie heads_, tails_;  // tails_: tokens inside a word, without the prefix
  std::string prefix_;
  std::int32_t unknown_;
  std::size_t max_code_points_;
};

}  // namespace tfm::tokenizer
