// JSON with the order of its members, which chat templates print.
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/strings.h"
#include "text/jinja/template.h"
#include "text/unicode.h"

namespace tfm::text::jinja {
namespace {

class ValueBuilder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit ValueBuilder(const std::string& where) : where_(where) {}

  Value take() { return std::move(root_); }
  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(std::int64_t{value}); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max()))
      fail("the number " + std::to_string(value) + " is no integer of 64 bits");
    return add(static_cast<std::int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    if (text.find_first_of(".eE") == text.npos)
      fail("the number " + shorten(text, 40) + " is no integer of 64 bits");
    return add(value);
  }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { fail("binary data"); }
  bool start_object(std::size_t) override { return open(true); }
  bool start_array(std::size_t) override { return open(false); }
  bool end_object() override {
    Dict dict = std::move(open_.back().dict);
    open_.pop_back();
    return add(std::move(dict));
  }
  bool end_array() override {
    List items = std::move(open_.back().items);
    open_.pop_back();
    return add(Value::sequence(std::move(items)));
  }
  bool key(string_t& name) override {
    if (open_.back().dict.find(name))
      fail("member " + in_quotes(name) + " appears twice in one object");
    open_.back().key = std::move(name);
    return true;
  }
  bool parse_error(std::size_t byte, const std::string&,
                   const nlohmann::json::exception& e) override {
    fail("byte " + std::to_string(byte) + ": invalid JSON: " + shorten(well_formed(e.what()), 200));
  }

 private:
  struct Open {
    bool object;
    std::string key = {};
    Dict dict = {};
    List items = {};
  };
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ExitCode::input, where_ + ": " + what);
  }
  bool add(Value value) {
    if (open_.empty())
      root_ = std::move(value);
    else if (open_.back().object)
      open_.back().dict.set(open_.back().key, std::move(value));
    else
      open_.back().items.push_back(std::move(value));
    return true;
  }
  bool open(bool object) {
    constexpr std::size_t deepest = 64;
    if (open_.size() == deepest)
      fail("JSON nested deeper than " + std::to_string(deepest) + " levels");
    open_.push_back({.object = object});
    return true;
  }

  const std::string& where_;
  Value root_ = nullptr;
  std::vector<Open> open_;
};

}  // namespace

Value parse_json(std::string_view text, const std::string& where) {
  ValueBuilder builder(where);
  try {
    nlohmann::json::sax_parse(text, &builder);
  } catch (const Exceeded& problem) {
    throw LimitError(where + ": " + problem.what());
  } catch (const Problem& problem) {
    throw Error(ExitCode::input, where + ": " + problem.what());
  }
  return builder.take();
}

}  // namespace tfm::text::jinja
