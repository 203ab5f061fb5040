#pragma once
// GPT-2's byte-level byte-pair encoding (Radford et al., "Language models are unsupervised multitask learners", 2019).
//
// The text is split into words by GPT-2's pattern; the bytes of a word are merged pair by pair, always the pair that comes
// first in merges.txt and of those the leftmost. Special tokens have no effect in text: "<|endoftext|>" is spelled out.
// A byte that is not part of well-formed UTF-8 ends the word before it and becomes the token of that byte, so every byte
// string survives encode and decode. Letters, numbers and spaces are those of the Unicode version of the PCRE2 that is linked.
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "data/tokenizer.h"

namespace tfm {

class BpeTokenizer final : public Tokenizer {
 public:
  // vocab.json: an object from token, written in the byte alphabet, to a distinct id below 2^24; all 256 bytes must have one.
  // merges.txt: one pair a line, best first; lines that start with #version are skipped. Throws Error(input) with the file
  // and the line or entry.
  BpeTokenizer(const std::string& vocab_path, const std::string& merges_path);
  ~BpeTokenizer() override;

  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::int64_t vocab_size() const override { return static_cast<std::int64_t>(pieces_.size()); }
  // <|endoftext|>, else </s>, where the vocabulary has it.
  std::optional<std::int32_t> end_of_document() const override { return end_of_document_; }
  std::size_t safe_cut(std::string_view text) const override;

 private:
  struct Scratch;  // what one call of encode() needs, kept between calls

  // What a pair of ids merges into.
  struct Merge {
    std::uint64_t pair = ~std::uint64_t{0};
    std::int32_t rank = 0, id = 0;
  };

  class MergeTable {  // open addressing, at most half full
   public:
    void reserve(std::size_t merges);
    bool insert(const Merge& merge);  // false: the pair is there already
    const Merge* find(std::int32_t left, std::int32_t right) const;

   private:
    std::size_t slot(std::uint64_t pair) const { return (pair * 0x9E3779B97F4A7C15u) >> shift_; }
    std::vector<Merge> slots_;
    int shift_ = 63;
  };

  void read_merges(const std::string& path, const std::vector<std::pair<std::string, std::int32_t>>& entries);
  void encode_valid(std::string_view text, Scratch& scratch, std::vector<std::int32_t>& ids) const;
  void encode_word(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& ids) const;
  void merge_short(std::string_view word, std::vector<std::int32_t>& ids) const;
  void merge_long(std::string_view word, std::vector<std::int32_t>& ids) const;

  std::array<std::int32_t, 256> byte_id_{};
  std::vector<std::optional<std::string>> pieces_;  // bytes of each id; ids may have gaps
  std::optional<std::int32_t> end_of_document_;
  MergeTable merges_;

  struct Pattern;
  std::unique_ptr<Pattern> pattern_;
  mutable std::mutex mutex_;  // guards idle_
  mutable std::vector<std::unique_ptr<Scratch>> idle_;
};

}  // namespace tfm
