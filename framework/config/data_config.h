#pragma once
// The section `data`: where texts and tokens come from, and what is made of them.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/options.h"
#include "config/source_type.h"

namespace tfm::config {

struct SourcePath {
  std::string path;
  double weight = 1;
  std::string source = {}, target = {};  // pairs: two files instead of `path`
  std::string prefix = {};               // pairs: text before each source
  bool operator==(const SourcePath&) const = default;
};
// Fill in the middle; ids below 0 are the tokenizer's.
struct FimConfig {
  double rate = 0, spm_rate = 0.5;
  std::int64_t prefix = -1, middle = -1, suffix = -1;
  bool operator==(const FimConfig&) const = default;
};
struct SourceConfig {
  std::string type;  // of source_types()
  std::vector<SourcePath> paths;
  bool weighted = false;          // several paths, of which one at least has a weight written
  std::string source, target;     // pairs: two files instead of `paths`
  double temperature = 1;         // pairs: shares of paths are their sizes to the power 1 / this
  std::int64_t max_examples = 0;  // pairs: a size counts as at most this; 0: no limit
  double bpe_dropout = 0;         // pairs, training: merges that are left out
  double mask_probability = 0;  // mlm, span_corruption, denoise, labelled; 0: until fill_derived()
  double mean_span_length = 0;  // span_corruption, denoise; likewise
  bool whole_words = false;     // mlm, denoise: words are masked as a whole
  // denoise: shares of the sentences, of sequences and of tokens.
  double permute_sentences = 1, rotate = 0, delete_tokens = 0, mask_tokens = 0;
  FimConfig fim;  // tokens, text
  bool shuffle = false;
  Documents documents = Documents::joined;
  std::int64_t document_end = -1;  // -1: the tokenizer's
  bool next_sentence = false;      // mlm: pairs of sentences
  std::string field = "text";      // of .jsonl lines
  // labelled: names of columns; `text_pair` and `negative` may be empty.
  std::string text = "text", text_pair, negative, label = "label";
  // chat: the member of a row that holds its messages, and auto, chatml or a file.
  std::string messages = "messages", chat_template = "auto";
  const SourceType& kind() const { return source_type(type); }
  // What a row of pairs has: a query, its document, and perhaps a negative.
  std::int64_t texts_of_pair() const { return negative.empty() ? 2 : 3; }
  bool operator==(const SourceConfig&) const = default;
};
struct DataConfig {
  SourceConfig train;
  std::optional<SourceConfig> validation;
  std::string tokenizer;         // empty: auto
  std::string source_tokenizer;  // of the source side of pairs; empty: `tokenizer`
  // The one to load where none is named.
  std::string tokenizer_or_bytes() const { return tokenizer.empty() ? "bytes" : tokenizer; }
  AddBegin add_begin = AddBegin::automatic;
  Switch restart_positions = Switch::automatic;
  // Whether positions restart with each document of a sequence.
  bool restarts() const {
    const bool packs = train.documents == Documents::packed || train.kind().chats;
    return restart_positions == Switch::automatic ? packs : restart_positions == Switch::yes;
  }
  bool operator==(const DataConfig&) const = default;
};

}  // namespace tfm::config
