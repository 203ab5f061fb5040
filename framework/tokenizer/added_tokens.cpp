#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "text/unicode.h"

namespace tfm::tokenizer {
namespace {

std::size_t end_of_spaces(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const text::CodePoint c = text::first_code_point(text.substr(at));
    if (!text::is_white_space(c.value)) break;
    at += c.bytes;
  }
  return at;
}

std::size_t begin_of_spaces(std::string_view text, std::size_t at) {
  while (at > 0) {
    const text::CodePoint c = text::last_code_point(text.substr(0, at));
    if (!text::is_white_space(c.value)) break;
    at -= c.bytes;
  }
  return at;
}

bool touches_word(std::string_view text, std::size_t begin, std::size_t end) {
  return (begin > 0 && text::is_word(text::last_code_point(text.substr(0, begin)).value)) ||
         (end < text.size() && text::is_word(text::first_code_point(text.substr(end)).value));
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const AddedToken& t) { return t.content.empty(); });
  std::vector<std::pair<std::string_view, std::int32_t>> keys;
  for (const AddedToken& t : tokens_) {
    keys.emplace_back(t.content, static_cast<std::int32_t>(keys.size()));
    starts_[static_cast<unsigned char>(t.content.front())] = true;
  }
  trie_ = text::Trie(std::move(keys));
}

bool AddedTokens::allows_cuts() const {
  return std::all_of(tokens_.begin(), tokens_.end(), [](const AddedToken& t) {
    return !t.rstrip && t.content.find_first_of(" \n") == t.content.npos;
  });
}

void AddedTokens::split(std::string_view text, const Sink& sink) const {
  // Text before it has been passed on. As in the library, a token may lie in spaces that the one
  // before it took.
  std::size_t from = 0;
  for (std::size_t at = 0; at < text.size() && !tokens_.empty();) {
    if (!starts_[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    const auto [bytes, index] = trie_.longest_prefix(text.substr(at));
    if (bytes == 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<std::size_t>(index)];
    std::size_t begin = at, end = at + bytes;
    at = end;
    if (token.single_word && touches_word(text, begin, end)) continue;
    if (token.lstrip) begin = std::max(begin_of_spaces(text, begin), from);
    if (token.rstrip) end = end_of_spaces(text, end);
    if (begin >= end) continue;  // the token before it took all of it
    if (from < begin) sink(from, begin, nullptr);
    sink(begin, end, &token);
    from = end;
  }
  if (from < text.size()) sink(from, text.size(), nullptr);
}

}  // namespace tfm::tokenizer
