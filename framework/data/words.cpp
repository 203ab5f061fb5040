#include "data/words.h"

#include <algorithm>
#include <string_view>

namespace tfm::data {
namespace {

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

bool ends_with_any(std::string_view text, std::initializer_list<std::string_view> ends) {
  return std::ranges::any_of(ends, [&](std::string_view end) { return text.ends_with(end); });
}

// Without white space, quotation marks and brackets at its end.
std::string_view without_closers(std::string_view text) {
  while (!text.empty() &&
         (is_space(text.back()) || std::string_view("\"')]").find(text.back()) != text.npos))
    text.remove_suffix(1);
  if (ends_with_any(text, {"\u201D", "\u2019"})) text.remove_suffix(3);
  return text;
}

}  // namespace

Words::Words(const tokenizer::Tokenizer& tokenizer) {
  const tokenizer::SpecialIds special = tokenizer.special_ids();
  for (const auto& id : {special.pad, special.unknown, special.begin, special.end, special.mask,
                         special.classify, special.separate})
    if (id) traits_.resize(std::max(traits_.size(), static_cast<std::size_t>(*id) + 1), alone);
  traits_.resize(std::max(traits_.size(), static_cast<std::size_t>(tokenizer.vocab_size())), alone);
  for (std::size_t i = 0; i < traits_.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    if (!tokenizer.knows(id) || tokenizer.is_added(id)) continue;
    const std::string text = tokenizer.token_text(id);
    if (text.empty()) continue;
    const std::string_view last = without_closers(text);
    traits_[i] =
        static_cast<std::uint8_t>((is_space(text.back()) && text != " " ? breaks : 0) |
                                  (is_space(text.front()) ? spaced : 0) |
                                  (ends_with_any(last, {".", "!", "?", "\u2026"}) ? stops : 0) |
                                  (ends_with_any(last, {"\u3002", "\uFF01", "\uFF1F"}) ? ends : 0));
  }
  for (const auto& id : {special.end, special.separate, tokenizer.end_of_document()})
    if (id) traits_[static_cast<std::size_t>(*id)] = alone | ends;
}

}  // namespace tfm::data
