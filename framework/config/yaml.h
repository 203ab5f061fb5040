#pragma once
// The part of YAML 1.2 that configurations need, as a tree in which every key and value has its
// place.
//
// Maps, lists, plain and quoted text, comments; block and flow style. Refused, with line and
// column: anchors, aliases, tags, merge keys, block text (`|`, `>`), quoted or plain text over
// several lines, tabs as indentation, duplicate keys, keys that are not plain text, directives, a
// second document, more than 64 levels, more than 1 MiB, anything but UTF-8. BOM and CRLF are
// accepted.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/diagnostics.h"

namespace tfm::config {

struct YamlNode {
  // broken: already reported, to be skipped.
  enum class Kind : std::uint8_t { null, scalar, sequence, map, broken };

  Kind kind = Kind::null;
  Mark at;
  bool plain = true;            // scalar: not in quotes
  std::string text;             // scalar: its value
  std::vector<YamlNode> keys;   // map: scalars, in order
  std::vector<YamlNode> items;  // map: values; sequence: items

  YamlNode* find(std::string_view key);
  const YamlNode* find(std::string_view key) const {
    return const_cast<YamlNode*>(this)->find(key);
  }
  YamlNode& add(YamlNode key, YamlNode value);  // map: appends an entry
};

constexpr int kYamlDepth = 64;
constexpr std::size_t kYamlBytes = 1 << 20;

// Reads `path` as a new source of `out`. False, with the problem in `out`, if it cannot be read, is
// too long or is not UTF-8. Line ends become \n, and a BOM is removed.
bool read_yaml_file(const std::string& path, Diagnostics& out, int& source);
// Parses a source whose root must be a map; nullopt, with the problems in `out`, if the text is no
// such tree. Problems that leave the tree's shape intact (duplicate keys, anchors, aliases, tags)
// are added to `out` and the tree is returned.
std::optional<YamlNode> parse_yaml(Diagnostics& out, int source);
// Parses the value of an override: a flow list, a flow map or quoted text as YAML, anything else as
// plain text.
std::optional<YamlNode> parse_yaml_value(Diagnostics& out, int source);

// What a scalar means in YAML 1.2's core schema.
std::optional<bool> boolean_of(const YamlNode& node);
inline bool is_boolean(const YamlNode& node) { return boolean_of(node).has_value(); }
bool is_number(const YamlNode& node);
std::string describe(const YamlNode& node);  // "the text 'abc'", "a list", ... for messages

// A signed whole number; 1e3 and 1.5k count if the result is whole. On failure the readers return
// nullopt and set `problem`.
struct WholeNumber {
  bool negative = false;
  std::uint64_t magnitude = 0;
};
std::optional<WholeNumber> read_whole(const YamlNode& node, bool suffixes, std::string& problem);
std::optional<double> read_real(const YamlNode& node, std::string& problem);
std::optional<bool> read_boolean(const YamlNode& node, std::string& problem);

// Text as a YAML scalar that reads back to it.
std::string quote_yaml(std::string_view text);

// Part of parse_yaml: checks the text before it is parsed. False if parsing is pointless.
bool scan_yaml(Diagnostics& out, int source);

}  // namespace tfm::config
