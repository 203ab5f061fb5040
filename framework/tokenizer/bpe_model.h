#pragma once
// Byte-pair encoding (Sennrich et al., "Neural machine translation of rare words with subword
// units", 2016).
//
// A word starts as its bytes or code points. The adjacent pair whose merge has the lowest rank, of
// these the leftmost, is merged repeatedly until no adjacent pair has a merge.
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/trie.h"
#include "tokenizer/token_model.h"

namespace tfm::tokenizer {

struct BpeOptions {
  // Tokens are written in GPT-2's byte alphabet and words start as bytes; otherwise as code points.
  bool byte_level = false;
  bool ignore_merges = false;  // a word that is a token becomes that token
  // A code point without a token becomes the tokens <0x00> to <0xFF> of its bytes if all of them
  // exist, otherwise `unknown`, otherwise nothing.
  bool byte_fallback = false;
  std::optional<std::int32_t> unknown;
  bool fuse_unknown = false;  // one `unknown` for adjacent ones
};

struct BpeMerge {
  std::int32_t left, right, rank, merged;
};

class BpeModel final : public TokenModel {
 public:
  // Merges may use ids without an entry, which count as unknown if they remain; `letters` are
  // single code points with such ids. Of equal pairs the first merge counts.
  BpeModel(const VocabEntries& entries, const std::vector<BpeMerge>& merges,
           const BpeOptions& options, const VocabEntries& letters = {});

  void encode(std::string_view word, std::vector<std::int32_t>& ids) const override;
  void encode(std::string_view word, const BpeDropout& dropout,
              std::vector<std::int32_t>& ids) const override;
  bool merges() const override { return true; }
  bool splits_at_metaspace() const override { return splits_at_metaspace_; }
  // The token of a byte at byte level, -1 if there is none.
  std::int32_t byte_id(unsigned char byte) const { return byte_id_[byte]; }

 private:
  // The merge of a pair of ids.
  struct Merge {
    std::uint64_t pair = ~std::uint64_t{0};
    std::int32_t rank = 0, id = 0;
  };

  class MergeTable {  // open addressing, at most half full
   public:
    void reserve(std::size_t merges);
    void insert(const Merge& merge);  // keeps the first of equal pairs
    const Merge* find(std::int32_t left, std::int32_t right) const;

   private:
    std::size_t slot(std::uint64_t pair) const { return (pair * 0x9E3779B97F4A7C15u) >> shift_; }
    std::vector<Merge> slots_;
    int shift_ = 63;
  };

  void read_entries(const VocabEntries& entries);
  template <class Sink>
  void for_each_symbol(std::string_view word, const Sink& sink) const;
  std::size_t merge_short(std::int32_t* id, std::size_t n) const;
  void merge_long(std::vector<std::int32_t>& ids) const;
  void append(std::int32_t symbol, std::vector<std::int32_t>& ids) const;

  BpeOptions options_;
  std::array<std::int32_t, 256> byte_id_{};  // of a byte, or of <0xNN> with options_.byte_fallback
  std::unordered_map<std::uint32_t, std::int32_t> letter_id_;
  std::vector<std::string> letters_;  // of the ids from letters_begin_ on
  std::int32_t letters_begin_ = 0;
  text::Trie tokens_;  // used with options_.ignore_merges
  MergeTable merges_;
  bool splits_at_metaspace_ = false;
};

// The merges of pairs of tokens, with the id of the token that they form. Error(input) is place(i)
// followed by what is wrong with pair i.
std::vector<BpeMerge> merges_of_pairs(const VocabEntries& entries,
                                      const std::vector<std::pair<std::string, std::string>>& pairs,
                                      const std::function<std::string(std::size_t)>& place);

}  // namespace tfm::tokenizer
