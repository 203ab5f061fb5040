#pragma once
// Strict JSON (no duplicate members, bounded depth), and typed access that names the place of what
// is wrong. Only files that hold a tree include <nlohmann/json.hpp>, which takes seconds to
// compile.
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tfm::io {

// Converts the text of a number that is not a 64-bit integer.
using ReadFloat = double (*)(std::string_view text);

// These throw Error(input), which begins with `where`, for broken JSON, duplicate members and more
// than 64 levels. Numbers that are not 64-bit integers become the nearest double, or what
// `read_float` gives.
nlohmann::json parse_json(std::string_view text, const std::string& where,
                          ReadFloat read_float = nullptr);
// The same for a file of at most max_bytes.
nlohmann::json read_json_file(const std::string& path, std::size_t max_bytes,
                              ReadFloat read_float = nullptr);

// A value and its place, written as model.vocab or added_tokens[3].id. Refers to the tree, which
// must outlive it. Error(input), with file and place, for what is missing or of another type.
class JsonNode {
 public:
  JsonNode(const nlohmann::json& value, std::string file, std::string place = "")
      : value_(&value), file_(std::move(file)), place_(std::move(place)) {}

  JsonNode at(const std::string& member) const;
  // nullopt if the member is absent or null.
  std::optional<JsonNode> find(const std::string& member) const;
  std::vector<JsonNode> items() const;                            // elements of an array
  std::vector<std::pair<std::string, JsonNode>> members() const;  // members of an object

  const std::string& string() const;
  bool boolean() const;
  std::string object() const;  // the text of an object
  double number() const;       // finite
  std::int64_t integer(std::int64_t low, std::int64_t high) const;
  std::uint64_t unsigned_integer() const;

  // These return `otherwise` if the member is absent or null.
  bool flag(const std::string& member, bool otherwise) const;
  std::string text(const std::string& member, const std::string& otherwise) const;

  bool is_string() const;
  bool is_array() const;
  bool is_object() const;
  // Error(input) for a member that is not listed.
  void expect_only(std::initializer_list<std::string_view> known) const;
  [[noreturn]] void fail(const std::string& problem) const;
  // The beginning of fail()'s message.
  std::string where() const { return file_ + ": " + (place_.empty() ? "" : place_ + ": "); }

 private:
  [[noreturn]] void wrong_type(const char* expected) const;
  std::string inside(const std::string& member) const {
    return place_.empty() ? member : place_ + "." + member;
  }

  const nlohmann::json* value_;
  std::string file_, place_;
};

}  // namespace tfm::io
