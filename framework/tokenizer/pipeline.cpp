#include "tokenizer/pipeline.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/utf8.h"
#include "text/unicode.h"

namespace tfm::tokenizer {
namespace {

// Whether the text ends in a whitespace character; it may be cut within a UTF-8 sequence.
bool ends_with_space(std::string_view text) {
  if (text.empty()) return false;
  const unsigned char last = static_cast<unsigned char>(text.back());
  if (last < 0x80) return last == ' ' || (last >= '\t' && last <= '\r');
  if (text.ends_with("\xC2\x85") || text.ends_with("\xC2\xA0") || text.ends_with("\xE1\x9A\x80") ||
      text.ends_with("\xE2\x81\x9F") || text.ends_with("\xE3\x80\x80"))
    return true;
  const bool general_punctuation =
      text.size() >= 3 && text.substr(text.size() - 3).starts_with("\xE2\x80");
  return general_punctuation && (last <= 0x8A || last == 0xA8 || last == 0xA9 || last == 0xAF);
}

bool is_letter_or_digit(char c) {
  return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
}

}  // namespace

SpecialIds special_ids_by_name(const TokenLookup& id_of) {
  const auto first = [&](std::initializer_list<const char*> names) {
    std::optional<std::int32_t> id;
    for (const char* name : names)
      if (!id) id = id_of(name);
    return id;
  };
  return {.pad = first({"[PAD]", "<pad>"}),
          .unknown = first({"[UNK]", "<unk>"}),
          .begin = first({"<s>", "<|begin_of_text|>", "<|endoftext|>", "<bos>"}),
          .end = first({"</s>", "<|end_of_text|>", "<|endoftext|>", "<eos>"}),
          .mask = first({"[MASK]", "<mask>"}),
          .classify = first({"[CLS]", "<s>"}),
          .separate = first({"[SEP]", "</s>"})};
}

std::optional<std::int32_t> end_of_document_by_name(const TokenLookup& id_of) {
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "</s>", "[SEP]", "<eos>"})
    if (const auto id = id_of(name)) return id;
  return std::nullopt;
}

std::vector<std::int32_t> sentinel_ids_by_name(const TokenLookup& id_of) {
  std::vector<std::int32_t> ids;
  while (const auto id = id_of("<extra_id_" + std::to_string(ids.size()) + ">")) ids.push_back(*id);
  return ids;
}

// A direct-mapped cache of short words.
struct PipelineTokenizer::Scratch {
  struct Slot {  // one cache line
    std::uint8_t length = 0, count = 0;
    char bytes[22];
    std::int32_t ids[10];
  };
  static constexpr std::size_t slots = std::size_t{1} << 15;
  std::vector<Slot> cache = std::vector<Slot>(slots);
  const BpeDropout* dropout = nullptr;  // of the call
};

PipelineTokenizer::PipelineTokenizer(PipelineParts parts) : parts_(std::move(parts)) {
  tokens_.reserve(parts_.entries.size());
  for (auto& [token, id] : parts_.entries) {
    if (token.starts_with('<') || token.starts_with('[') || token.starts_with("\xE2\x96\x81<"))
      special_.emplace(token, id);
    vocab_size_ = std::max<std::int64_t>(vocab_size_, id + 1);
    tokens_[id] = std::move(token);
  }
  parts_.entries = {};
  std::vector<AddedToken> raw, normalized;
  for (AddedToken& token : parts_.added) {
    added_.insert(token.id);
    if (token.normalized && parts_.normalizer && !parts_.added_as_is) {
      parts_.normalizer->apply(token.content);
      tokens_[token.id] = token.content;
    }
    (token.normalized ? normalized : raw).push_back(std::move(token));
  }
  parts_.added = {};
  raw_ = AddedTokens(std::move(raw));
  normalized_ = AddedTokens(std::move(normalized));
  const bool local = raw_.allows_cuts() && normalized_.allows_cuts() &&
                     (!parts_.normalizer || parts_.normalizer->allows_cuts());
  if (local) cuts_ = parts_.splitter ? parts_.splitter->cuts() : parts_.cuts;
  if (parts_.normalizer) cuts_ = std::min(cuts_, Cuts::after_words);
}

PipelineTokenizer::~PipelineTokenizer() = default;

std::optional<std::int32_t> PipelineTokenizer::id_of(const std::string& token) const {
  const auto found = special_.find(token);
  return found == special_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::int32_t> PipelineTokenizer::end_of_document() const {
  return end_of_document_by_name([this](const std::string& t) { return id_of(t); });
}

std::vector<std::int32_t> PipelineTokenizer::sentinel_ids() const {
  return sentinel_ids_by_name([this](const std::string& t) { return id_of(t); });
}

std::optional<std::int32_t> PipelineTokenizer::begin_of_text() const {
  const auto& before = parts_.before;
  return before.size() == 1 && before[0] != id_of("[CLS]") ? std::optional(before[0])
                                                           : std::nullopt;
}

SpecialIds PipelineTokenizer::special_ids() const {
  SpecialIds ids = special_ids_by_name([this](const std::string& t) { return id_of(t); });
  if (parts_.unknown) ids.unknown = parts_.unknown;
  return ids;
}

std::unique_ptr<PipelineTokenizer::Scratch> PipelineTokenizer::take_scratch() const {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return std::make_unique<Scratch>();
  std::unique_ptr<Scratch> scratch = std::move(idle_.back());
  idle_.pop_back();
  return scratch;
}

void PipelineTokenizer::give_back(std::unique_ptr<Scratch> scratch) const {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(scratch));
}

std::vector<std::int32_t> PipelineTokenizer::encode_text(std::string_view text,
                                                         Scratch& scratch) const {
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 3 + 4);
  if (parts_.byte_id) {
    encode_bytes(text, scratch, ids);
  } else if (parts_.any_bytes || utf8_valid_prefix(text) == text.size()) {
    encode_valid(text, true, scratch, ids);
  } else {
    encode_valid(text::well_formed(text), true, scratch, ids);
  }
  return ids;
}

std::vector<std::int32_t> PipelineTokenizer::encode(std::string_view text) const {
  std::unique_ptr<Scratch> scratch = take_scratch();
  std::vector<std::int32_t> ids = encode_text(text, *scratch);
  give_back(std::move(scratch));
  return ids;
}

std::vector<std::int32_t> PipelineTokenizer::encode(std::string_view text,
                                                    const BpeDropout& dropout) const {
  std::unique_ptr<Scratch> scratch = take_scratch();
  scratch->dropout = &dropout;
  std::vector<std::int32_t> ids = encode_text(text, *scratch);
  scratch->dropout = nullptr;
  give_back(std::move(scratch));
  return ids;
}

void PipelineTokenizer::encode_bytes(std::string_view text, Scratch& scratch,
                                     std::vector<std::int32_t>& ids) const {
  for (bool first = true; !text.empty(); first = false) {
    const std::size_t valid = utf8_valid_prefix(text);
    if (valid > 0) encode_valid(text.substr(0, valid), first, scratch, ids);
    text.remove_prefix(valid);
    for (; !text.empty() && utf8_length(text) == 0; text.remove_prefix(1))
      if (const std::int32_t id = parts_.byte_id(static_cast<unsigned char>(text.front())); id >= 0)
        ids.push_back(id);
  }
}

std::vector<std::int32_t> PipelineTokenizer::encode_with_specials(std::string_view text) const {
  std::vector<std::int32_t> ids = parts_.before;
  const std::vector<std::int32_t> middle = encode(text);
  ids.insert(ids.end(), middle.begin(), middle.end());
  if (!parts_.after_once || middle.empty() || middle.back() != parts_.after[0])
    ids.insert(ids.end(), parts_.after.begin(), parts_.after.end());
  return ids;
}

void PipelineTokenizer::encode_valid(std::string_view text, bool first, Scratch& scratch,
                                     std::vector<std::int32_t>& ids) const {
  raw_.split(text, [&](std::size_t begin, std::size_t end, const AddedToken* token) {
    if (token) return ids.push_back(token->id);
    std::string part(text.substr(begin, end - begin));
    encode_part(part, first && begin == 0, scratch, ids);
  });
}

void PipelineTokenizer::encode_part(std::string& text, bool at_start, Scratch& scratch,
                                    std::vector<std::int32_t>& ids) const {
  std::size_t lead = at_start ? 1 : 0;
  if (parts_.normalizer && at_start && !text.empty())
    lead = parts_.normalizer->apply_to(text, text::first_code_point(text).bytes);
  else if (parts_.normalizer)
    parts_.normalizer->apply(text), lead = 0;
  encode_plain({text, lead}, scratch, ids);
}

std::vector<std::int32_t> PipelineTokenizer::encode_with_cuts(std::string_view text,
                                                              std::span<const std::size_t> offsets,
                                                              std::vector<Cut>& cuts) const {
  std::unique_ptr<Scratch> scratch = take_scratch();
  std::vector<std::int32_t> ids;
  std::size_t next = 0;  // of the offsets
  raw_.split(text, [&](std::size_t begin, std::size_t end, const AddedToken* token) {
    const std::size_t before = ids.size();
    std::string part(text.substr(begin, end - begin));
    if (token)
      ids.push_back(token->id);
    else
      encode_part(part, begin == 0, *scratch, ids);
    if (next == offsets.size() || offsets[next] >= end) return;
    const std::vector<Stretch> stretches = token
                                               ? std::vector<Stretch>{{0, end - begin}}
                                               : stretches_of(part, std::span(ids).subspan(before));
    for (; next < offsets.size() && offsets[next] < end; ++next) {
      std::string left(text.substr(begin, offsets[next] - begin));
      if (!token && parts_.normalizer) parts_.normalizer->apply(left);
      if (!token && !part.starts_with(left))
        throw Error(ExitCode::input,
                    "the tokenizer's normalizer joins what stands on both sides of byte " +
                        std::to_string(offsets[next]));
      const auto at = std::ranges::partition_point(
          stretches, [&](const Stretch& s) { return s.end <= left.size(); });
      cuts.push_back({before + static_cast<std::size_t>(at - stretches.begin()),
                      at != stretches.end() && at->begin < left.size()});
    }
  });
  for (; next < offsets.size(); ++next) cuts.push_back({ids.size(), false});
  give_back(std::move(scratch));
  return ids;
}

void PipelineTokenizer::encode_plain(Piece text, Scratch& scratch,
                                     std::vector<std::int32_t>& ids) const {
  const PieceSink sink = [&](Piece piece) { encode_piece(piece.text, scratch, ids); };
  normalized_.split(text.text, [&](std::size_t begin, std::size_t end, const AddedToken* token) {
    if (token) return ids.push_back(token->id);
    const Piece piece = text.part(begin, end);
    parts_.splitter ? parts_.splitter->split(piece, sink) : sink(piece);
  });
}

void PipelineTokenizer::encode_piece(std::string_view piece, Scratch& scratch,
                                     std::vector<std::int32_t>& ids) const {
  if (!parts_.model->splits_at_metaspace()) return encode_word(piece, scratch, ids);
  while (!piece.empty()) {
    std::size_t at = 0;
    while (piece.substr(at).starts_with(metaspace)) at += metaspace.size();
    const std::size_t cut = std::min(piece.find(metaspace, at), piece.size());
    encode_word(piece.substr(0, cut), scratch, ids);
    piece.remove_prefix(cut);
  }
}

void PipelineTokenizer::encode_word(std::string_view word, Scratch& scratch,
                                    std::vector<std::int32_t>& ids) const {
  if (scratch.dropout) return parts_.model->encode(word, *scratch.dropout, ids);
  if (word.size() > sizeof(Scratch::Slot::bytes)) return parts_.model->encode(word, ids);
  Scratch::Slot& slot = scratch.cache[XXH3_64bits(word.data(), word.size()) % Scratch::slots];
  if (slot.length == word.size() && std::memcmp(slot.bytes, word.data(), word.size()) == 0) {
    ids.insert(ids.end(), slot.ids, slot.ids + slot.count);
    return;
  }
  const std::size_t before = ids.size();
  parts_.model->encode(word, ids);
  const std::size_t count = ids.size() - before;
  if (count > std::size(slot.ids)) return;
  slot.length = static_cast<std::uint8_t>(word.size());
  slot.count = static_cast<std::uint8_t>(count);
  std::memcpy(slot.bytes, word.data(), word.size());
  std::copy(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end(), slot.ids);
}

std::string PipelineTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto found = tokens_.find(ids[i]);
    if (found == tokens_.end())
      throw Error(ExitCode::input, "id " + std::to_string(ids[i]) + " at position " +
                                       std::to_string(i) +
                                       " is not in the vocabulary, whose largest id is " +
                                       std::to_string(vocab_size() - 1));
    tokens.push_back(found->second);
  }
  if (parts_.decoder) parts_.decoder->apply(tokens);
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    text.append(i > 0 && !parts_.decoder ? " " : "").append(tokens[i]);
  return text;
}

std::string PipelineTokenizer::token_text(std::int32_t id) const {
  if (!knows(id)) return decode({&id, 1});
  const std::string& token = tokens_.at(id);
  if (is_added(id)) return token;
  if (const std::string_view inside = parts_.model->continuation(); !inside.empty())
    return token.starts_with(inside) ? token.substr(inside.size()) : " " + token;
  if (!parts_.decoder) return " " + token;
  std::vector<std::string> around{"x", token, "x"};  // decoders strip ends of a text
  parts_.decoder->apply(around);
  std::string text;
  for (const std::string& part : around) text += part;
  return text.substr(1, text.size() - 2);
}

std::size_t PipelineTokenizer::safe_cut(std::string_view text) const {
  for (std::size_t at = cuts_ == Cuts::none ? 0 : text.size(); at-- > 1;) {
    if (text[at] == ' ' && is_letter_or_digit(text[at - 1])) return at;
    const bool space = text[at] == ' ' || text[at] == '\n';
    if (cuts_ == Cuts::before_spaces && space && !ends_with_space(text.substr(0, at))) return at;
  }
  return 0;
}

}  // namespace tfm::tokenizer
