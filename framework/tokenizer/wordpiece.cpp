#include "tokenizer/wordpiece.h"

#include "text/unicode.h"

namespace tfm::tokenizer {

WordPieceModel::WordPieceModel(const VocabEntries& entries, const std::string& prefix,
                               std::int32_t unknown, std::size_t max_code_points)
    : prefix_(prefix), unknown_(unknown), max_code_points_(max_code_points) {
  std::vector<std::pair<std::string_view, std::int32_t>> heads, tails;
  for (const auto& [token, id] : entries) {
    heads.emplace_back(token, id);
    if (token.starts_with(prefix))
      tails.emplace_back(std::string_view(token).substr(prefix.size()), id);
  }
  heads_ = text::Trie(std::move(heads));
  tails_ = text::Trie(std::move(tails));
}

void WordPieceModel::encode(std::string_view word, std::vector<std::int32_t>& ids) const {
  const std::size_t before = ids.size();
  bool fits = word.size() <= max_code_points_ || text::count_code_points(word) <= max_code_points_;
  for (const text::Trie* trie = &heads_; fits && !word.empty(); trie = &tails_) {
    const auto [bytes, id] = trie->longest_prefix(word);
    fits = bytes > 0;
    ids.push_back(id);
    word.remove_prefix(bytes);
  }
  if (fits) return;
  ids.resize(before);
  ids.push_back(unknown_);
}

}  // namespace tfm::tokenizer
