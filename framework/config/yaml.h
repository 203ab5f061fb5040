#pragma once
// The part of YAML 1.2 that a configuration needs, as a tree in which every key and value knows its
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
  enum class Kind : std::uint8_t {
    null,
    scalar,
    sequence,
    map,
    broken
  };  // broken: already reported, to be passed over

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

// Reads `path` as a new source of `out`. False, with the problem in `out`, when it cannot be read,
// is too long or is no UTF-8 text. Line ends become \n and a BOM is removed.
bool read_yaml_file(const std::string& path, Diagnostics& out, int& source);
// Parses a source whose root has to be a map; nothing, with the problems in `out`, when the text is
// no such tree. A tree comes back beside problems that leave its shape intact (duplicate keys,
// anchors, aliases, tags).
std::optional<YamlNode> parse_yaml(Diagnostics& out, int source);
// The value of an override: a flow list or map or quoted text as YAML, anything else as it stands.
std::optional<YamlNode> parse_yaml_value(Diagnostics& out, int source);

// What a scalar means in YAML 1.2's core schema.
bool is_boolean(const YamlNode& node);
bool is_number(const YamlNode& node);
std::string describe(const YamlNode& node);  // "the text 'abc'", "a list", ... for messages

// A whole number with sign; 1e3 and 1.5k count when the result is whole. On failure nothing, and
// `problem` says why.
struct WholeNumber {
  bool negative = false;
  std::uint64_t magnitude = 0;
};
std::optional<WholeNumber> read_whole(const YamlNode& node, bool suffixes, std::string& problem);
std::optional<double> read_real(const YamlNode& node, std::string& problem);
std::optional<bool> read_boolean(const YamlNode& node, std::string& problem);

// Text as a YAML scalar that reads back to it.
std::string quote_yaml(std::string_view text);

// Checks the text before it is parsed; false when parsing makes no sense any more. Part of
// parse_yaml.
bool scan_yaml(Diagnostics& out, int source);

}  // namespace tfm::config
