#pragma once
// The types of data sources (data.train.type): which families they train and which keys concern
// them. data/objective.h has what each makes of its data.
#include <string>
#include <string_view>
#include <vector>

#include "config/options.h"

namespace tfm::config {

struct SourceType {
  std::string name;
  std::vector<Family> families = {};
  enum class Files : std::uint8_t { any, tokens, text } files = Files::any;
  bool pairs = false;           // two texts: keys `source` and `target`, or files with both
  bool documents = true;        // key `documents`
  double mask_probability = 0;  // default of the key; 0: the key does not concern it
  double mean_span_length = 0;  // likewise
  bool next_sentence = false;   // key `next_sentence`
  bool whole_words = false;     // key `whole_words`
  bool denoises = false;        // keys `permute_sentences`, `rotate`, `delete` and `mask_tokens`
  bool fills_middle = false;    // section `fim`
  bool cuts = false;            // a text into a beginning and the rest: key `attention.prefix`
  // Rows of named columns, one of which is the class of the row's text: keys `text`, `text_pair`
  // and `label`.
  bool labelled = false;
  bool chats = false;            // keys `messages` and `template`
  bool own_lengths = false;      // the lengths of targets follow from other keys than train.seq_len
  bool any_file_weights = true;  // files may have weights
  bool trains(Family family) const;
  bool plain_text() const { return files == Files::text && !pairs && !labelled && !chats; }
};

// All types, and a place for more: a program may add its own before it reads a configuration.
std::vector<SourceType>& source_types();
// One without a name if there is none of this name.
const SourceType& source_type(std::string_view name);
// The first type that trains the family and reads such files, `any`: whatever it reads.
const std::string& first_type(Family family, SourceType::Files files);
// "types tokens, text and mlm": those that fulfil `p`.
template <class P>
std::string types_where(P&& p) {
  std::vector<std::string> names;
  for (const SourceType& t : source_types())
    if (p(t)) names.push_back(t.name);
  std::string all = names.size() == 1 ? "type " : "types ";
  for (std::size_t i = 0; i < names.size(); ++i)
    all += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  return all;
}

}  // namespace tfm::config
