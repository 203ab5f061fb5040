#pragma once
// A tokenizer as Hugging Face's `tokenizers` composes it: added tokens, normalizer, pre-tokenizer,
// model, special tokens, decoder.
//
// Text that is not well-formed UTF-8: byte-level models keep the ill-formed bytes, each of which
// ends the word before it and becomes the token of that byte. For other models, ill-formed parts
// become U+FFFD as in Python's bytes.decode(errors="replace").
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/token_decoder.h"
#include "tokenizer/token_model.h"
#include "tokenizer/tokenizer.h"

namespace tfm::tokenizer {

struct PipelineParts {
  VocabEntries entries;  // all tokens with their ids, including added ones
  std::vector<AddedToken> added;
  std::unique_ptr<Normalizer> normalizer;  // may be null
  std::unique_ptr<PreTokenizer> splitter;  // null: the whole text is one word
  std::unique_ptr<TokenModel> model;
  std::unique_ptr<TokenDecoder> decoder;    // null: tokens are joined by spaces
  std::vector<std::int32_t> before, after;  // around a text in encode_with_specials()
  bool after_once = false;                  // `after`, one id, does not follow itself
  std::optional<std::int32_t> unknown;
  // For byte-level models: the token of a byte, -1 if there is none. Empty for other models.
  std::function<std::int32_t(unsigned char)> byte_id;
  // The normalizer accepts text that is not UTF-8.
  bool any_bytes = false;
  // Added tokens are matched in the normalized text as they are; otherwise they are normalized
  // first.
  bool added_as_is = false;
  // Where a text may be cut if `splitter` is null and the model sees the whole text.
  Cuts cuts = Cuts::none;
};

// Special ids by the names [PAD], <pad>, [UNK], <unk>, [CLS], <s>, [SEP], </s>, [MASK], <mask>,
// <|endoftext|>, <|begin_of_text|>, <|end_of_text|>, <bos> and <eos>; of several names for one
// purpose, the first that `id_of` knows counts.
using TokenLookup = std::function<std::optional<std::int32_t>(const std::string& token)>;
SpecialIds special_ids_by_name(const TokenLookup& id_of);
std::optional<std::int32_t> end_of_document_by_name(const TokenLookup& id_of);
std::vector<std::int32_t> sentinel_ids_by_name(const TokenLookup& id_of);

class PipelineTokenizer final : public Tokenizer {
 public:
  explicit PipelineTokenizer(PipelineParts parts);
  ~PipelineTokenizer() override;

  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::vector<std::int32_t> encode(std::string_view text, const BpeDropout& dropout) const override;
  bool drops_merges() const override { return parts_.model->merges(); }
  std::vector<std::int32_t> encode_with_cuts(std::string_view text,
                                             std::span<const std::size_t> offsets,
                                             std::vector<Cut>& cuts) const override;
  std::vector<std::int32_t> encode_with_specials(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  bool knows(std::int32_t id) const override { return tokens_.contains(id); }
  std::string token_text(std::int32_t id) const override;
  std::optional<std::int32_t> special_id(const std::string& token) const override {
    return id_of(token);
  }
  bool is_added(std::int32_t id) const override { return added_.contains(id); }
  std::int64_t vocab_size() const override { return vocab_size_; }
  std::optional<std::int32_t> end_of_document() const override;
  SpecialIds special_ids() const override;
  std::optional<std::int32_t> begin_of_text() const override;
  std::vector<std::int32_t> sentinel_ids() const override;
  std::size_t safe_cut(std::string_view text) const override;

 private:
  struct Scratch;  // a cache of words, kept between calls; and what a call passes on to words

  std::optional<std::int32_t> id_of(const std::string& token) const;
  std::vector<std::int32_t> encode_text(std::string_view text, Scratch& scratch) const;
  std::unique_ptr<Scratch> take_scratch() const;
  void give_back(std::unique_ptr<Scratch> scratch) const;
  // The parts of a normalized text that its tokens stand for (pipeline_cuts.cpp).
  struct Stretch {
    std::size_t begin, end;
  };
  std::vector<Stretch> stretches_of(std::string_view text, std::span<const std::int32_t> ids) const;
  std::optional<Stretch> stretch_of(std::string_view text, std::size_t at, std::int32_t id) const;
  void encode_bytes(std::string_view text, Scratch& scratch, std::vector<std::int32_t>& ids) const;
  void encode_valid(std::string_view text, bool first, Scratch& scratch,
                    std::vector<std::int32_t>& ids) const;
  // Text between added tokens, which it normalizes.
  void encode_part(std::string& text, bool at_start, Scratch& scratch,
                   std::vector<std::int32_t>& ids) const;
  void encode_plain(Piece text, Scratch& scratch, std::vector<std::int32_t>& ids) const;
  void encode_piece(std::string_view piece, Scratch& scratch, std::vector<std::int32_t>& ids) const;
  void encode_word(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& ids) const;

  PipelineParts parts_;
  AddedTokens raw_, normalized_;
  std::unordered_set<std::int32_t> added_;
  std::unordered_map<std::int32_t, std::string> tokens_;  // by id; ids may have large gaps
  std::int64_t vocab_size_ = 0;
  // Tokens that the functions above may look up.
  std::unordered_map<std::string, std::int32_t> special_;
  Cuts cuts_ = Cuts::none;

  mutable std::mutex mutex_;  // guards idle_
  mutable std::vector<std::unique_ptr<Scratch>> idle_;
};

}  // namespace tfm::tokenizer
