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
  // A space that the tokenizer puts before a text counts with the first character.
  if (content == metaspace && !rest.empty())
    return Stretch{at, at + text::first_code_point(rest).bytes};
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
  for (const std::int32_t id : ids) {
    auto found = stretch_of(text, at, id);
    for (std::size_t skipped = at;
         !found && skipped < text.size();) {  // space that words leave out
      if (const auto c = text[skipped]; c != ' ' && c != '\n' && c != '\t' && c != '\r') break;
      found = stretch_of(text, ++skipped, id);
    }
    if (!found)
      throw Error(ExitCode::input, "the token " + in_quotes(tokens_.at(id)) +
                                       " does not say which part of the text " +
                                       in_quotes(std::string(text.substr(at, 40))) +
                                       " it stands for");
    all.push_back(*found);
    at = found->end;
  }
  return all;
}

}  // namespace tfm::tokenizer
