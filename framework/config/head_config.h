#pragma once
// The configuration of a model's heads, key model.heads.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/options.h"

namespace tfm::config {

// What a model predicts.
struct HeadConfig {
  // lm: the token of each position; classify: the class of a sequence; tag: the class of each word;
  // regress: a number for a sequence; embed: a vector for a sequence
  std::string type = "lm";
  std::string name;   // filled with the type
  double weight = 1;  // of its term of the loss
  // Types classify and tag.
  std::int64_t classes = 0;                // filled with the number of labels
  std::vector<std::string> labels;         // names of the classes in data; empty: their numbers
  std::vector<double> class_weights = {};  // multiply the loss of a class; empty: all 1
  // Types classify, regress and embed; the dense layer not of embed.
  Pool pool = Pool::automatic;
  Pooler pooler = Pooler::automatic;
  // Type embed.
  bool normalize = true;   // vectors have length 1
  double scale = 20;       // multiplies similarities in the loss: 1 / temperature
  std::int64_t group = 0;  // consecutive pairs of a batch that share negatives; 0: all
  bool has_classes() const { return type == "classify" || type == "tag"; }
  bool summarizes() const { return type == "classify" || type == "regress"; }
  bool embeds() const { return type == "embed"; }
  bool pools() const { return summarizes() || embeds(); }
  // Learns a column of data of type labelled.
  bool labelled() const { return has_classes() || summarizes(); }
  bool operator==(const HeadConfig&) const = default;
};
// Name of the head of type classify that key `next_sentence` adds: the second objective of BERT.
inline constexpr std::string_view kNextSentence = "next_sentence";
// The types of heads, and a place for more (models/head.h).
std::vector<std::string_view>& head_types();

}  // namespace tfm::config
