// Which parts of a text its tokens stand for.
#include <charconv>

#include "core/error.h"
#include "core/strings.h"
#include "text/unicode.h"
#include "tokenizer/bpe_vocab.h"
#include "tokenizer/pipeline.h"

namespace tfm::tokenizer {

namespace {

// Bytes at the start of a text that the content of a token stands for, where U+2581 may stand for a
// space; nullopt: it stands for others.
std::optional<std::size_t> matched(std::string_view content, std::string_view text) {
  std::size_t at = 0;
  while (!content.empty()) {
    const bool space = content.starts_with(metaspace) && text.substr(at).starts_with(' ');
    if (!space && (at == text.size() || content.front() != text[at])) return std::nullopt;
    content.remove_prefix(space ? metaspace.size() : 1);
    ++at;
  }
  return at;
}

}  // namespace

// What the token stands for in the text from `at` on.
std::optional<PipelineTokenizer::Stretch> PipelineTokenizer::stretch_of(std::string_view text,
                                                                        std::size_t at,
                                                                        std::int32_t id) const {
  std::string content = tokens_.at(id);
  if (parts_.byte_id)
    if (const auto bytes = alphabet_bytes(content)) content = *bytes;
  const std::string_view rest = text.substr(at);
  if (const auto bytes = matched(content, rest)) return Stretch{at, at + *bytes};
  // A space that the tokenizer puts before a text is none of it.
  if (content == metaspace && !rest.empty()) return Stretch{at, at};
  for (const std::string_view prefix : {std::string_view(" "), metaspace, std::string_view("##")})
    if (content.starts_with(prefix))
      if (const auto bytes = matched(std::string_view(content).substr(prefix.size()), rest))
        return Stretch{at, at + *bytes};
  unsigned byte = 0;
  if (content.size() == 6 && content.starts_with("<0x") && !rest.empty() &&
      std::from_chars(content.data() + 3, content.data() + 5, byte, 16).ec == std::errc() &&
      byte == static_cast<unsigned char>(rest.front()))
    return Stretch{at, at + 1};
  return std::nullopt;
}

std::vector<PipelineTokenizer::Stretch> PipelineTokenizer::stretches_of(
    std::string_view text, std::span<const std::int32_t> ids) const {
  std::vector<Stretch> all;
  std::size_t at = 0;
  const auto find = [&](std::size_t from, std::int32_t id) {
    auto found = stretch_of(text, from, id);
    while (!found && from < text.size()) {  // space that words leave out
      if (const auto c = text[from]; c != ' ' && c != '\n' && c != '\t' && c != '\r') break;
      found = stretch_of(text, ++from, id);
    }
    return found;
  };
  const auto unknown = special_ids().unknown;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::int32_t id = ids[i];
    auto found = find(at, id);
    // What is not known is a character, and all up to what the next token stands for.
    if (!found && id == unknown && at < text.size()) {
      std::size_t end = at;
      do end += text::first_code_point(text.substr(end)).bytes;
      while (end < text.size() &&
             (i + 1 == ids.size() || (ids[i + 1] != unknown && !find(end, ids[i + 1]))));
      found = Stretch{at, end};
    }
    if (!found)
      throw Error(ExitCode::input, "the token " + in_quotes(tokens_.at(id)) +
                                       " does not say which part of the text " +
                                       in_quotes(std::string(text.substr(at, 40))) +
                                       " it stands for");
    at = found->end;
    // A space before the text counts with the first character.
    if (found->begin == found->end && at < text.size()) ++found->end;
    all.push_back(*found);
  }
  return all;
}

}  // namespace tfm::tokenizer
