// Attributes and methods of values.
#include <algorithm>

#include "core/strings.h"
#include "text/jinja/operations.h"
#include "text/unicode.h"

namespace tfm::text::jinja {
namespace {

const std::string& string_of(const Arguments& a, std::size_t index, std::string_view name) {
  const Value& value = a.required(index, name);
  if (!value.string())
    throw Problem("argument '" + std::string(name) + "': expected a string, got a value of type " +
                  std::string(value.type()));
  return *value.string();
}

// The bytes from the last to the first: what is last in a text is first in it.
std::string reversed(std::string_view text) { return {text.rbegin(), text.rend()}; }

// str.find within [begin, end) in code points; -1: not found.
std::int64_t find(const std::string& text, const Arguments& a, bool last) {
  const std::u32string points = code_points(text);
  const std::string& sought = string_of(a, 0, "sub");
  const auto size = std::ssize(points);
  const auto bound = [&](std::size_t index, std::int64_t otherwise) {
    const Value v = a.value(index, "", nullptr);
    if (v.none()) return otherwise;
    const std::int64_t at = v.integer("the bound");
    return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size);
  };
  const std::int64_t begin = bound(1, 0), end = std::max(bound(2, size), begin);
  const std::string part = utf8(std::u32string_view(points).substr(
      static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
  std::size_t at = last ? place_of(reversed(part), reversed(sought)) : place_of(part, sought);
  if (at == part.npos) return -1;
  if (last) at = part.size() - at - sought.size();
  return begin + static_cast<std::int64_t>(count_code_points(std::string_view(part).substr(0, at)));
}

bool starts_or_ends(const std::string& text, const Arguments& a, bool starts) {
  const Value& what = a.required(0, "prefix");
  const Sequence* const all = what.sequence();
  const List options = all && all->kind == SequenceKind::tuple ? *all->items : List{what};
  return std::ranges::any_of(options, [&](const Value& v) {
    if (!v.string()) throw Problem("expected a string or a tuple of strings");
    return starts ? text.starts_with(*v.string()) : text.ends_with(*v.string());
  });
}

// Words between white space; `most`: splits, < 0: any.
List words_of(const std::string& text, std::int64_t most, bool from_right) {
  const std::u32string points = code_points(text);
  const auto space = [&](std::size_t i) {
    return is_white_space(points[i]) || (points[i] >= 0x1C && points[i] <= 0x1F);
  };
  List words;
  std::size_t begin = 0, end = points.size();
  const auto part = [&](std::size_t from, std::size_t to) {
    check_size(sizeof(Value) * (words.size() + 1));
    words.emplace_back(utf8(std::u32string_view(points).substr(from, to - from)));
  };
  for (std::int64_t n = 0;; ++n) {
    while (begin < end && space(begin)) ++begin;
    while (from_right && end > begin && space(end - 1)) --end;
    if (begin == end) break;
    if (most >= 0 && n == most) {
      if (!from_right) part(begin, end);
      if (from_right) part(0, end);
      break;
    }
    std::size_t cut = from_right ? end : begin;
    if (from_right) {
      while (cut > begin && !space(cut - 1)) --cut;
      part(cut, end);
      end = cut;
    } else {
      while (cut < end && !space(cut)) ++cut;
      part(begin, cut);
      begin = cut;
    }
  }
  if (from_right) std::ranges::reverse(words);
  return words;
}

Value split(const std::string& text, const Arguments& a, bool from_right) {
  a.expect({"sep", "maxsplit"});
  const Value separator = a.value(0, "sep", nullptr);
  const std::int64_t most = a.value(1, "maxsplit", std::int64_t{-1}).integer("maxsplit");
  if (separator.none()) return Value::sequence(words_of(text, most, from_right));
  const std::string& sep = string_of(a, 0, "sep");
  if (sep.empty()) throw Problem("the separator is empty");
  const std::string whole = from_right ? reversed(text) : text,
                    sought = from_right ? reversed(sep) : sep;
  List parts;
  const auto part = [&](std::string_view one) {
    check_size(sizeof(Value) * (parts.size() + 1));
    parts.emplace_back(from_right ? reversed(one) : std::string(one));
  };
  std::size_t at = 0;
  for (std::int64_t n = 0; most < 0 || n < most; ++n) {
    const std::size_t found = place_of(whole, sought, at);
    if (found == whole.npos) break;
    part(std::string_view(whole).substr(at, found - at));
    at = found + sep.size();
  }
  part(std::string_view(whole).substr(at));
  if (from_right) std::ranges::reverse(parts);
  return Value::sequence(std::move(parts));
}

Value partition(const std::string& text, const Arguments& a, bool last) {
  const std::string& sep = string_of(a, 0, "sep");
  if (sep.empty()) throw Problem("the separator is empty");
  std::size_t at = last ? place_of(reversed(text), reversed(sep)) : place_of(text, sep);
  if (at == text.npos)
    return Value::sequence(last ? List{"", "", text} : List{text, "", ""}, SequenceKind::tuple);
  if (last) at = text.size() - at - sep.size();
  return Value::sequence({text.substr(0, at), sep, text.substr(at + sep.size())},
                         SequenceKind::tuple);
}

Value joined(const std::string& separator, const Arguments& a, const Spend& spend) {
  std::string text;
  bool first = true;
  for (const Value& v : items_of(a.required(0, "iterable"))) {
    if (!v.string())
      throw Problem("join: expected strings, got a value of type " + std::string(v.type()));
    if (!first) append(text, separator, spend);
    append(text, *v.string(), spend);
    first = false;
  }
  return text;
}

Value justified(const std::string& text, const Arguments& a, const Spend& spend, int side) {
  const std::int64_t width = a.required(0, "width").integer("width");
  const std::string fill =
      a.value(1, "fillchar", " ").string() ? *a.value(1, "fillchar", " ").string() : "";
  if (count_code_points(fill) != 1) throw Problem("expected one character to fill with");
  if (width <= static_cast<std::int64_t>(count_code_points(text))) return text;
  check_size(static_cast<std::size_t>(width));
  const std::int64_t missing = width - static_cast<std::int64_t>(count_code_points(text));
  spend(static_cast<std::size_t>(missing) * fill.size());
  const std::int64_t left = side < 0 ? missing : side > 0 ? 0 : missing / 2 + (missing & width & 1);
  std::string out;
  for (std::int64_t i = 0; i < left; ++i) out += fill;
  out += text;
  for (std::int64_t i = left; i < missing; ++i) out += fill;
  return out;
}

enum class Class { alpha, digit, alnum, space, lower, upper };
Value is_all(const std::string& text, Class what) {
  bool cased = false;
  for (const char32_t c : code_points(text)) {
    const std::string one = utf8(std::u32string(1, c));
    const bool letter = is_word(c) && !is_number(c) && !is_mark(c) && c != '_';
    const bool is_lower = upper(one) != one, is_upper = lower(one) != one;
    cased |= is_lower || is_upper;
    if ((what == Class::alpha && !letter) || (what == Class::digit && !is_number(c)) ||
        (what == Class::alnum && !letter && !is_number(c)) ||
        (what == Class::space && !is_white_space(c)) || (what == Class::lower && is_upper) ||
        (what == Class::upper && is_lower))
      return false;
  }
  return what == Class::lower || what == Class::upper ? cased : !text.empty();
}

using Method = Value (*)(const std::string&, const Arguments&, const Spend&);
using Text = const std::string&;
using Given = const Arguments&;
using Cost = const Spend&;

const std::pair<std::string_view, Method> string_methods[] = {
    {"capitalize", [](Text s, Given, Cost) { return Value(capitalized(s)); }},
    {"casefold", [](Text s, Given, Cost) { return Value(lower(s)); }},
    {"center", [](Text s, Given a, Cost c) { return justified(s, a, c, 0); }},
    {"count",
     [](Text s, Given a, Cost) {
       const std::string& sought = string_of(a, 0, "sub");
       if (sought.empty()) return Value(static_cast<std::int64_t>(count_code_points(s)) + 1);
       std::int64_t n = 0;
       for (std::size_t at = 0; (at = place_of(s, sought, at)) != s.npos; at += sought.size()) ++n;
       return Value(n);
     }},
    {"endswith", [](Text s, Given a, Cost) { return Value(starts_or_ends(s, a, false)); }},
    {"find", [](Text s, Given a, Cost) { return Value(find(s, a, false)); }},
    {"index",
     [](Text s, Given a, Cost) {
       const std::int64_t at = find(s, a, false);
       if (at < 0) throw Problem("index: the text is not found");
       return Value(at);
     }},
    {"isalnum", [](Text s, Given, Cost) { return is_all(s, Class::alnum); }},
    {"isalpha", [](Text s, Given, Cost) { return is_all(s, Class::alpha); }},
    {"isdigit", [](Text s, Given, Cost) { return is_all(s, Class::digit); }},
    {"islower", [](Text s, Given, Cost) { return is_all(s, Class::lower); }},
    {"isspace", [](Text s, Given, Cost) { return is_all(s, Class::space); }},
    {"isupper", [](Text s, Given, Cost) { return is_all(s, Class::upper); }},
    {"join", [](Text s, Given a, Cost c) { return joined(s, a, c); }},
    {"ljust", [](Text s, Given a, Cost c) { return justified(s, a, c, 1); }},
    {"lower", [](Text s, Given, Cost) { return Value(lower(s)); }},
    {"lstrip", [](Text s, Given a,
                  Cost) { return Value(stripped(s, a.value(0, "", nullptr), true, false)); }},
    {"partition", [](Text s, Given a, Cost) { return partition(s, a, false); }},
    {"removeprefix",
     [](Text s, Given a, Cost) {
       const std::string& part = string_of(a, 0, "prefix");
       return Value(s.starts_with(part) ? s.substr(part.size()) : s);
     }},
    {"removesuffix",
     [](Text s, Given a, Cost) {
       const std::string& part = string_of(a, 0, "suffix");
       return Value(s.ends_with(part) ? s.substr(0, s.size() - part.size()) : s);
     }},
    {"replace",
     [](Text s, Given a, Cost c) {
       return Value(replaced(s, string_of(a, 0, "old"), string_of(a, 1, "new"),
                             a.value(2, "count", std::int64_t{-1}).integer("count"), c));
     }},
    {"rfind", [](Text s, Given a, Cost) { return Value(find(s, a, true)); }},
    {"rjust", [](Text s, Given a, Cost c) { return justified(s, a, c, -1); }},
    {"rpartition", [](Text s, Given a, Cost) { return partition(s, a, true); }},
    {"rsplit", [](Text s, Given a, Cost) { return split(s, a, true); }},
    {"rstrip", [](Text s, Given a,
                  Cost) { return Value(stripped(s, a.value(0, "", nullptr), false, true)); }},
    {"split", [](Text s, Given a, Cost) { return split(s, a, false); }},
    {"splitlines",
     [](Text s, Given, Cost) {
       const std::vector<std::string> lines = lines_of(s);
       return Value::sequence({lines.begin(), lines.end()});
     }},
    {"startswith", [](Text s, Given a, Cost) { return Value(starts_or_ends(s, a, true)); }},
    {"strip",
     [](Text s, Given a, Cost) { return Value(stripped(s, a.value(0, "", nullptr), true, true)); }},
    {"title", [](Text s, Given, Cost) { return Value(titled(s)); }},
    {"upper", [](Text s, Given, Cost) { return Value(upper(s)); }},
    {"zfill",
     [](Text s, Given a, Cost c) {
       const bool sign = s.starts_with('-') || s.starts_with('+');
       Arguments width{
           {std::max<std::int64_t>(a.required(0, "width").integer("width"), 1) - sign, "0"}, {}};
       return Value(s.substr(0, sign) + *justified(s.substr(sign), width, c, -1).string());
     }},
};

Value function(std::string name, const Value& object, std::function<Value(Given)> call) {
  return std::make_shared<const Function>(Function{.name = std::move(name),
                                                   .call = std::move(call),
                                                   .depth = deeper(object.depth()),
                                                   .cost = object.dict() ? 0 : object.size()});
}

Value of_string(const Value& object, const std::string& name, const Spend& spend) {
  for (const auto& [known, method] : string_methods)
    if (name == known)
      return function(name, object, [object, method, spend](Given a) {
        return method(*object.string(), a, spend);
      });
  for (const char* other :
       {"encode", "expandtabs", "format", "format_map", "isascii", "isdecimal", "isidentifier",
        "isnumeric", "isprintable", "istitle", "maketrans", "rindex", "swapcase", "translate"})
    if (name == other) throw Problem("the method " + name + " of strings is not supported");
  return Undefined{"a string has no attribute " + in_quotes(name)};
}

// What an attribute is if the sandbox refuses it, as it does where a method changes its object.
Value refused(const std::string& name) {
  return Undefined{"the sandbox of chat templates does not allow ." + name};
}

Value of_dict(const Value& object, const std::string& name) {
  const auto pair = [](const auto& item) {
    return Value::sequence({item.first, item.second}, SequenceKind::tuple);
  };
  if (name == "items" || name == "keys" || name == "values")
    return function(name, object, [object, name, pair](Given a) {
      a.expect({});
      List all;
      for (const auto& item : object.dict()->items())
        all.push_back(name == "items" ? pair(item) : name == "keys" ? item.first : item.second);
      return Value::sequence(std::move(all));
    });
  if (name == "get")
    return function(name, object, [object](Given a) {
      const Value* found = object.dict()->find(a.required(0, "key"));
      return found ? *found : a.value(1, "default", nullptr);
    });
  if (name == "copy") return function(name, object, [object](Given) { return object; });
  for (const char* change : {"clear", "pop", "popitem", "setdefault", "update"})
    if (name == change) return refused(name);
  return Undefined{"the dictionary has no item " + in_quotes(name)};
}

Value of_list(const Value& object, const std::string& name) {
  if (name == "index" || name == "count")
    return function(name, object, [object, name](Given a) {
      std::int64_t n = 0, index = 0;
      for (const Value& v : *object.sequence()->items) {
        if (equal(v, a.required(0, "value"))) {
          if (name == "index") return Value(index);
          ++n;
        }
        ++index;
      }
      if (name == "index") throw Problem("index: the value is not in the list");
      return Value(n);
    });
  if (name == "copy") return function(name, object, [object](Given) { return object; });
  for (const char* change :
       {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"})
    if (name == change) return refused(name);
  return Undefined{"a value of type " + std::string(object.type()) + " has no attribute " +
                   in_quotes(name)};
}

Value of_loop(const Loop& loop, const std::string& name) {
  const auto size = std::ssize(*loop.items), index = static_cast<std::int64_t>(loop.index);
  const std::pair<std::string_view, Value> simple[] = {
      {"index", index + 1},       {"index0", index},
      {"revindex", size - index}, {"revindex0", size - index - 1},
      {"first", index == 0},      {"last", index + 1 == size},
      {"length", size},           {"depth", std::int64_t{1}},
      {"depth0", std::int64_t{0}}};
  for (const auto& [known, value] : simple)
    if (name == known) return value;
  if (name == "previtem")
    return index > 0 ? (*loop.items)[loop.index - 1]
                     : Value(Undefined{"there is no previous item"});
  if (name == "nextitem")
    return index + 1 < size ? (*loop.items)[loop.index + 1]
                            : Value(Undefined{"there is no next item"});
  if (name == "cycle")
    return function(name, nullptr, [index](Given a) {
      if (a.positional.empty()) throw Problem("cycle: expected at least one value");
      return a.positional[static_cast<std::size_t>(index) % a.positional.size()];
    });
  if (name == "changed") throw Problem("loop.changed() is not supported");
  return Undefined{"loop has no attribute " + in_quotes(name)};
}

}  // namespace

Value attribute(const Value& object, const std::string& name, const Spend& spend) {
  if (const Undefined* u = object.get<Undefined>()) throw Problem(u->what);
  if (name.starts_with("__")) return refused(name);
  if (object.string()) return of_string(object, name, spend);
  if (object.dict()) return of_dict(object, name);
  if (object.sequence()) return of_list(object, name);
  if (const auto* loop = object.get<std::shared_ptr<const Loop>>()) return of_loop(**loop, name);
  if (const auto* space = object.get<std::shared_ptr<Namespace>>()) {
    const auto found = (*space)->find(name);
    if (found != (*space)->end()) return found->second;
  }
  if (const auto* f = object.get<std::shared_ptr<const Function>>(); f && name == "name")
    return (*f)->name;
  return Undefined{"a value of type " + std::string(object.type()) + " has no attribute " +
                   in_quotes(name)};
}

Value attribute_or_item(const Value& object, const std::string& name, const Spend& spend) {
  Value found = attribute(object, name, spend);
  if (found.undefined() && object.dict()) return item(object, name);
  return found;
}

Value item_or_attribute(const Value& object, const Value& key, const Spend& spend) {
  if (const Undefined* u = object.get<Undefined>()) throw Problem(u->what);
  Value found = object.get<std::shared_ptr<Namespace>>() && key.string()
                    ? attribute(object, *key.string(), spend)
                    : item(object, key);
  if (found.undefined() && key.string() && !object.get<std::shared_ptr<Namespace>>()) {
    Value other = attribute(object, *key.string(), spend);
    if (!other.undefined()) return other;
  }
  return found;
}

}  // namespace tfm::text::jinja
