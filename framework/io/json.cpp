#include "io/json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/strings.h"
#include "io/file.h"

namespace tfm::io {
namespace {

using Json = nlohmann::json;
constexpr std::size_t max_depth = 64;

class TreeBuilder final : public nlohmann::json_sax<Json> {
 public:
  TreeBuilder(const std::string& path, Json& root, ReadFloat read_float)
      : path_(path), root_(root), read_float_(read_float) {}

  bool null() override { return add(nullptr), true; }
  bool boolean(bool value) override { return add(value), true; }
  bool number_integer(number_integer_t value) override { return add(value), true; }
  bool number_unsigned(number_unsigned_t value) override { return add(value), true; }
  bool number_float(number_float_t value, const string_t& text) override {
    return add(read_float_ ? read_float_(text) : value), true;
  }
  bool string(string_t& value) override { return add(std::move(value)), true; }
  bool binary(binary_t&) override { throw Error(ExitCode::input, path_ + ": binary data"); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return stack_.pop_back(), true; }
  bool end_array() override { return stack_.pop_back(), true; }
  bool key(string_t& name) override {
    const auto [place, added] = stack_.back()->get_ref<Json::object_t&>().emplace(name, Json());
    if (!added)
      throw Error(ExitCode::input,
                  path_ + ": member " + in_quotes(name) + " appears twice in one object");
    member_ = &place->second;
    return true;
  }
  bool parse_error(std::size_t byte, const std::string&, const Json::exception& e) override {
    throw Error(ExitCode::input, path_ + ": byte " + std::to_string(byte) +
                                     ": invalid JSON: " + shorten(e.what(), 200));
  }

 private:
  Json* add(Json value) {
    Json* slot = &root_;
    if (!stack_.empty() && stack_.back()->is_array()) {
      stack_.back()->push_back(nullptr);
      slot = &stack_.back()->back();
    } else if (!stack_.empty()) {
      slot = member_;
    }
    *slot = std::move(value);
    return slot;
  }
  bool open(Json container) {
    if (stack_.size() == max_depth)
      throw Error(ExitCode::input,
                  path_ + ": JSON nested deeper than " + std::to_string(max_depth) + " levels");
    stack_.push_back(add(std::move(container)));
    return true;
  }

  const std::string& path_;
  Json& root_;
  ReadFloat read_float_;
  std::vector<Json*>
      stack_;  // open containers; one grows only at its end, while none inside it is open
  Json* member_ = nullptr;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& where, ReadFloat read_float) {
  Json root;
  TreeBuilder builder(where, root, read_float);
  Json::sax_parse(text, &builder);
  return root;
}

Json read_json_file(const std::string& path, std::size_t max_bytes, ReadFloat read_float) {
  return parse_json(read_whole_file(path, max_bytes), path, read_float);
}

void JsonNode::fail(const std::string& problem) const {
  throw Error(ExitCode::input, where() + problem);
}

void JsonNode::wrong_type(const char* expected) const {
  fail(std::string("expected ") + expected + ", got " +
       (value_->is_structured()
            ? std::string(value_->type_name())
            : in_quotes(value_->dump(-1, ' ', true, Json::error_handler_t::replace))));
}

std::optional<JsonNode> JsonNode::find(const std::string& member) const {
  if (!value_->is_object()) wrong_type("an object");
  const auto found = value_->find(member);
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return JsonNode(*found, file_, inside(member));
}

JsonNode JsonNode::at(const std::string& member) const {
  if (const auto found = find(member)) return *found;
  fail("member \"" + member + "\" is missing");
}

std::vector<JsonNode> JsonNode::items() const {
  if (!value_->is_array()) wrong_type("an array");
  std::vector<JsonNode> result;
  result.reserve(value_->size());
  for (const Json& item : *value_)
    result.emplace_back(item, file_, place_ + "[" + std::to_string(result.size()) + "]");
  return result;
}

std::vector<std::pair<std::string, JsonNode>> JsonNode::members() const {
  if (!value_->is_object()) wrong_type("an object");
  std::vector<std::pair<std::string, JsonNode>> result;
  for (const auto& [name, item] : value_->items())
    result.emplace_back(name, JsonNode(item, file_, inside(in_quotes(name))));
  return result;
}

bool JsonNode::is_string() const { return value_->is_string(); }

bool JsonNode::is_array() const { return value_->is_array(); }
bool JsonNode::is_object() const { return value_->is_object(); }

const std::string& JsonNode::string() const {
  if (!value_->is_string()) wrong_type("a string");
  return value_->get_ref<const std::string&>();
}

bool JsonNode::boolean() const {
  if (!value_->is_boolean()) wrong_type("true or false");
  return value_->get<bool>();
}

std::string JsonNode::object() const {
  if (!value_->is_object()) wrong_type("an object");
  return value_->dump();
}

double JsonNode::number() const {
  if (!value_->is_number() || !std::isfinite(value_->get<double>())) wrong_type("a number");
  return value_->get<double>();
}

std::int64_t JsonNode::integer(std::int64_t low, std::int64_t high) const {
  const std::string expected =
      "an integer from " + std::to_string(low) + " to " + std::to_string(high);
  if (!value_->is_number_integer()) wrong_type(expected.c_str());
  if (value_->is_number_unsigned() &&
      value_->get<std::uint64_t>() > static_cast<std::uint64_t>(high))
    wrong_type(expected.c_str());
  const std::int64_t value = value_->get<std::int64_t>();
  if (value < low || value > high) wrong_type(expected.c_str());
  return value;
}

std::uint64_t JsonNode::unsigned_integer() const {
  if (!value_->is_number_unsigned()) wrong_type("an unsigned integer");
  return value_->get<std::uint64_t>();
}

bool JsonNode::flag(const std::string& member, bool otherwise) const {
  const auto found = find(member);
  return found ? found->boolean() : otherwise;
}

std::string JsonNode::text(const std::string& member, const std::string& otherwise) const {
  const auto found = find(member);
  return found ? found->string() : otherwise;
}

void JsonNode::expect_only(std::initializer_list<std::string_view> known) const {
  if (!value_->is_object()) wrong_type("an object");
  for (const auto& [name, item] : value_->items())
    if (std::find(known.begin(), known.end(), name) == known.end())
      fail("member " + in_quotes(name) + " is not supported by this version; expected " +
           join(std::vector<std::string_view>(known)));
}

}  // namespace tfm::io
