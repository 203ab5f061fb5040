#pragma once
// Text to token ids and back.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace tfm::tokenizer {

struct BpeDropout;  // token_model.h

// Ids of tokens with a meaning to models; nullopt if the tokenizer does not have them.
struct SpecialIds {
  std::optional<std::int32_t> pad, unknown, begin, end, mask, classify, separate;
};

// Every member may be called from several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The ids of a text alone.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  // encode() with BPE dropout, where drops_merges(). Not a function of the text alone.
  virtual std::vector<std::int32_t> encode(std::string_view /*text*/, const BpeDropout&) const {
    internal_error("only merges can be dropped");
  }
  virtual bool drops_merges() const { return false; }  // of this side
  // The ids of a text with the special tokens that the tokenizer puts around a single text, such as
  // [CLS] ... [SEP] or ... </s>.
  virtual std::vector<std::int32_t> encode_with_specials(std::string_view text) const {
    return encode(text);
  }
  // encode(text), and where each of `offsets`, bytes of the text in ascending order, lies among the
  // tokens. Error(input) if that cannot be told, because the tokenizer changes the text too much.
  struct Cut {
    std::size_t tokens;  // that end at or before the offset
    bool within;         // the next one begins before it
  };
  virtual std::vector<std::int32_t> encode_with_cuts(std::string_view text,
                                                     std::span<const std::size_t> offsets,
                                                     std::vector<Cut>& cuts) const;
  // Whether the token is matched as a whole before anything else is done with a text, as special
  // tokens are.
  virtual bool is_added(std::int32_t) const { return false; }
  // The bytes of the ids, which may not be valid UTF-8. Error(input) for an id outside the
  // vocabulary.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  virtual bool knows(std::int32_t id) const = 0;  // whether decode() accepts it
  // What a token stands for in the middle of a text, with the space before it if it begins a word.
  // Error(input) for an id outside the vocabulary.
  virtual std::string token_text(std::int32_t id) const { return decode({&id, 1}); }
  virtual std::int64_t vocab_size() const = 0;  // largest id + 1
  virtual std::optional<std::int32_t> end_of_document() const = 0;
  virtual SpecialIds special_ids() const { return {}; }
  // The id, if any, that encode_with_specials() puts before a text to say that it begins, as
  // Llama's <s>; [CLS] is none.
  virtual std::optional<std::int32_t> begin_of_text() const { return std::nullopt; }
  // The id that ends a document where one is needed; of `bytes`, too.
  std::optional<std::int32_t> document_end() const {
    const auto end = end_of_document();
    return end ? end : special_ids().end;
  }
  // The id of a special token, by what it is written as.
  virtual std::optional<std::int32_t> special_id(const std::string& /*token*/) const {
    return std::nullopt;
  }
  // The ids of T5's sentinels <extra_id_0>, <extra_id_1>, ... up to the first that is missing.
  virtual std::vector<std::int32_t> sentinel_ids() const { return {}; }

  // The tokenizer of the target side of translations, if it encodes differently from the source
  // side. decode() is already that of the target side.
  virtual const Tokenizer& target() const { return *this; }
  // The tokenizer of the source side, if decode() is another one's.
  virtual const Tokenizer& source() const { return *this; }

  // The largest c for which encode(text[0, c)) followed by encode(text[c, ...)) is encode(text),
  // whatever is appended to `text`; 0 if there is no such place, or none is known. Long texts are
  // cut there and encoded in pieces.
  virtual std::size_t safe_cut(std::string_view text) const = 0;
};

// Ids of the `bytes` tokenizer: 0 to 255 are the bytes, followed by special ids for objectives that
// need them. encode() gives bytes only, end_of_document() is empty and vocab_size() is 256; special
// ids decode to no text.
struct ByteSpecials {
  static constexpr std::int32_t begin = 256, end = 257, padding = 258, mask = 259,
                                first_sentinel = 260, sentinels = 100;
};

// Whether `spec` names the tokenizer that needs no file.
bool is_bytes(const std::string& spec);

// Loads `bytes`; a tokenizer.json; a SentencePiece .model; or a directory with tokenizer.json,
// MarianMT's source.spm, target.spm and vocab.json, GPT-2's vocab.json and merges.txt, T5's
// spiece.model, Llama's tokenizer.model, or a tokenizer_config.json that says ByT5Tokenizer.
// Error(input) if that fails.
//
// `source`, unless empty: what to load for the source side; `spec` is the target side's.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& spec, const std::string& source = "");

}  // namespace tfm::tokenizer
