#pragma once
// What Python's operators and conversions do to values. All throw Problem for types that they do
// not take.
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace tfm::text::jinja {

std::string float_text(double value);     // repr(float)
std::string text_of(const Value& value);  // str(value)
std::string repr_of(const Value& value);

struct JsonStyle {
  bool ascii = false, sort_keys = false;
  std::string item = ", ", member = ": ";
  std::string indent;  // of a level; used if `lines`
  bool lines = false;
};

bool truth(const Value& value);
bool equal(const Value& a, const Value& b);
int order(const Value& a, const Value& b);  // < 0, 0, > 0
bool contains(const Value& container, const Value& item);
std::int64_t length(const Value& value);
// What iteration gives; of a stream, which is empty afterwards.
List items_of(const Value& value);

// `spend` is told the size of what is made before it is.
using Spend = std::function<void(std::size_t)>;
std::string json_of(const Value& value, const JsonStyle& style, const Spend& spend);  // json.dumps
Value arithmetic(std::string_view op, const Value& a, const Value& b, const Spend& spend);
Value negative(const Value& value);
Value item(const Value& object, const Value& key);  // object[key], or undefined
// object[begin:end:step]; undefined or None: not given.
Value slice(const Value& object, const Value& begin, const Value& end, const Value& step);
std::string formatted(const std::string& format, const Value& values,
                      const Spend& spend);  // format % values
// Adds to a text, if it stays within the size of a value.
void append(std::string& text, std::string_view more, const Spend& spend);
// Where a text first has another one, from `from` on, or npos; in linear time.
std::size_t place_of(std::string_view text, std::string_view sought, std::size_t from = 0);

// Code points of well-formed UTF-8, and back.
std::u32string code_points(std::string_view text);
std::string utf8(std::u32string_view points);
std::string upper(std::string_view text);  // by the simple case mappings of Unicode
std::string lower(std::string_view text);
std::string capitalized(std::string_view text);
std::string titled(std::string_view text);                   // str.title()
std::vector<std::string> lines_of(const std::string& text);  // str.splitlines()
std::string stripped(const std::string& text, const Value& characters, bool left, bool right);
std::string replaced(const std::string& text, const std::string& from, const std::string& to,
                     std::int64_t most, const Spend& spend);

// The attribute `name` of a value, or undefined; Problem for one that Jinja's sandbox refuses, or
// that this interpreter does not have.
Value attribute(const Value& object, const std::string& name, const Spend& spend);
// Jinja's object.name: the attribute, else the item; and object[name], the other way round.
Value attribute_or_item(const Value& object, const std::string& name, const Spend& spend);
Value item_or_attribute(const Value& object, const Value& key, const Spend& spend);

}  // namespace tfm::text::jinja
