#pragma once
// JSON read strictly (no member twice, bounded depth), and typed access to it that names the
// place of what is wrong. A file that holds a tree includes <nlohmann/json.hpp>, which takes
// seconds to compile.
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tfm::io {

// The value of a number's text that is not a 64-bit integer.
using ReadFloat = double (*)(std::string_view text);

// These throw Error(input), which begins with `where`, for broken JSON, a member that comes twice
// and more than 64 levels. Numbers that are not integers become the nearest double, or what
// `read_float` says. Ordered: members stay in the order of the text.
nlohmann::json parse_json(std::string_view text, const std::string& where,
                          ReadFloat read_float = nullptr);
nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& where);
// The same of a file, of at most max_bytes.
nlohmann::json read_json_file(const std::string& path, std::size_t max_bytes,
                              ReadFloat read_float = nullptr);

// A value and its place, written as model.vocab or added_tokens[3].id. Refers to the tree, which
// must live longer. What is missing or of another type is Error(input) with file and place.
class JsonNode {
 public:
  JsonNode(const nlohmann::json& value, std::string file, std::string place = "")
      : value_(&value), file_(std::move(file)), place_(std::move(place)) {}

  JsonNode at(const std::string& member) const;
  std::optional<JsonNode> find(
      const std::string& member) const;  // empty where it is absent or null
  std::vector<JsonNode> items() const;   // of an array
  std::vector<std::pair<std::string, JsonNode>> members() const;  // of an object

  const std::string& string() const;
  bool boolean() const;
  double number() const;  // finite
  std::int64_t integer(std::int64_t low, std::int64_t high) const;

  bool flag(const std::string& member,
            bool otherwise) const;  // `otherwise` where it is absent or null
  std::string text(const std::string& member, const std::string& otherwise) const;

  bool is_string() const;
  bool is_array() const;
  // Refuses a member that is not listed.
  void expect_only(std::initializer_list<std::string_view> known) const;
  [[noreturn]] void fail(const std::string& problem) const;
  std::string where() const {
    return file_ + ": " + (place_.empty() ? "" : place_ + ": ");
  }  // what fail() starts with

 private:
  [[noreturn]] void wrong_type(const char* expected) const;
  std::string inside(const std::string& member) const {
    return place_.empty() ? member : place_ + "." + member;
  }

  const nlohmann::json* value_;
  std::string file_, place_;
};

}  // namespace tfm::io
