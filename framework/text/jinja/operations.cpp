#include "text/jinja/operations.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "core/strings.h"
#include "text/unicode.h"

namespace tfm::text::jinja {

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char digits[64];
  const auto end =
      std::to_chars(digits, digits + sizeof digits, value, std::chars_format::scientific).ptr;
  std::string text(digits, end);
  const std::size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  if (exponent < -4 || exponent >= 16) {
    return text;  // as Python: at least two digits of the exponent, and its sign
  }
  const auto fixed =
      std::to_chars(digits, digits + sizeof digits, value, std::chars_format::fixed).ptr;
  text.assign(digits, fixed);
  return text.find('.') == text.npos ? text + ".0" : text;
}

std::string text_of(const Value& value) {
  if (const std::string* s = value.string()) return *s;
  return repr_of(value);
}

namespace {

std::string quoted_repr(const std::string& text) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string out(1, quote);
  for (std::string_view rest = text; !rest.empty();) {
    const CodePoint c = first_code_point(rest);
    const char first = rest.front();
    if (first == '\\' || first == quote)
      out.append(1, '\\').append(1, first);
    else if (first == '\n' || first == '\r' || first == '\t')
      out += first == '\n' ? "\\n" : first == '\r' ? "\\r" : "\\t";
    else if (is_other(c.value) || (c.value != ' ' && is_white_space(c.value)))
      out += printed(c.value < 0x100     ? "\\x%02x"
                     : c.value < 0x10000 ? "\\u%04x"
                                         : "\\U%08x",
                     c.value);
    else
      out += rest.substr(0, c.bytes);
    rest.remove_prefix(c.bytes);
  }
  return out + quote;
}

}  // namespace

std::string repr_of(const Value& value) {
  if (const std::string* s = value.string()) return quoted_repr(*s);
  if (value.undefined()) return "";
  if (value.none()) return "None";
  if (const bool* b = value.get<bool>()) return *b ? "True" : "False";
  if (const auto* i = value.get<std::int64_t>()) return std::to_string(*i);
  if (const auto* d = value.get<double>()) return float_text(*d);
  if (const Sequence* s = value.sequence(); s && s->kind != SequenceKind::stream) {
    const bool list = s->kind == SequenceKind::list;
    std::string text(list ? "[" : "(");
    for (const Value& v : *s->items) {
      if (text.size() > 1) text += ", ";
      text += v.undefined() ? "Undefined" : repr_of(v);
    }
    return text + (list ? "]" : s->items->size() == 1 ? ",)" : ")");
  }
  if (const Dict* d = value.dict()) {
    std::string text = "{";
    for (const auto& [key, v] : d->items())
      text += (text.size() > 1 ? ", " : "") + repr_of(key) + ": " +
              (v.undefined() ? "Undefined" : repr_of(v));
    return text + "}";
  }
  throw Problem("a value of type " + std::string(value.type()) +
                " has no text; expected a string, a number, a list or a dictionary");
}

namespace {

std::string json_string(const std::string& text, bool ascii) {
  std::string out = "\"";
  for (std::string_view rest = text; !rest.empty();) {
    const CodePoint c = first_code_point(rest);
    constexpr std::string_view from = "\"\\\n\r\t\b\f", to = "\"\\nrtbf";
    if (const auto at = from.find(rest.front()); at != from.npos)
      out.append(1, '\\').append(1, to[at]);
    else if (c.value < 0x20 || (ascii && c.value > 0x7E && c.value < 0x10000))
      out += printed("\\u%04x", c.value);
    else if (ascii && c.value >= 0x10000)
      out += printed("\\u%04x\\u%04x", 0xD800 + ((c.value - 0x10000) >> 10),
                     0xDC00 + ((c.value - 0x10000) & 0x3FF));
    else
      out += rest.substr(0, c.bytes);
    rest.remove_prefix(c.bytes);
  }
  return out + '"';
}

std::string json_number(const Value& value) {
  if (const double* d = value.get<double>(); d && !std::isfinite(*d))
    return std::isnan(*d) ? "NaN" : *d < 0 ? "-Infinity" : "Infinity";
  return repr_of(value);
}

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, const Spend& spend) : style_(style), spend_(spend) {}
  std::string take() { return std::move(text_); }

  void write(const Value& value, int level) {
    const Dict* const dict = value.dict();
    const Sequence* const list = value.sequence();
    if (value.none())
      add("null");
    else if (const bool* b = value.get<bool>())
      add(*b ? "true" : "false");
    else if (value.number())
      add(json_number(value));
    else if (const std::string* s = value.string())
      add(json_string(*s, style_.ascii));
    else if (dict)
      write(*dict, level);
    else if (list && list->kind != SequenceKind::stream)
      write(*list, level);
    else
      throw Problem("a value of type " + std::string(value.type()) + " cannot be written as JSON");
  }

 private:
  void add(std::string_view more) { append(text_, more, spend_); }
  void line(int levels) {
    if (!style_.lines) return;
    add("\n");
    for (int i = 0; i < levels; ++i) add(style_.indent);
  }
  void begin_item(bool first, int level) {
    if (!first) add(style_.item);
    line(level + 1);
  }
  void write_key(const Value& key) {
    if (key.string()) return write(key, 0);
    if (!key.number() && !key.none())
      throw Problem("a key of type " + std::string(key.type()) + " cannot be written as JSON");
    add("\"");
    write(key, 0);
    add("\"");
  }
  void write(const Dict& dict, int level) {
    auto items = dict.items();
    if (style_.sort_keys)
      std::ranges::stable_sort(
          items, [](const auto& a, const auto& b) { return order(a.first, b.first) < 0; });
    add("{");
    for (std::size_t i = 0; i < items.size(); ++i) {
      begin_item(i == 0, level);
      write_key(items[i].first);
      add(style_.member);
      write(items[i].second, level + 1);
    }
    if (!items.empty()) line(level);
    add("}");
  }
  void write(const Sequence& list, int level) {
    add("[");
    for (std::size_t i = 0; i < list.items->size(); ++i) {
      begin_item(i == 0, level);
      write((*list.items)[i], level + 1);
    }
    if (!list.items->empty()) line(level);
    add("]");
  }

  const JsonStyle& style_;
  const Spend& spend_;
  std::string text_;
};

}  // namespace

std::string json_of(const Value& value, const JsonStyle& style, const Spend& spend) {
  JsonWriter writer(style, spend);
  writer.write(value, 0);
  return writer.take();
}

bool truth(const Value& value) {
  if (value.undefined() || value.none()) return false;
  if (const bool* b = value.get<bool>()) return *b;
  if (value.number()) return value.real() != 0;
  if (const std::string* s = value.string()) return !s->empty();
  if (const Sequence* s = value.sequence())
    return s->kind == SequenceKind::stream || !s->items->empty();
  if (const Dict* d = value.dict()) return !d->items().empty();
  return true;
}

bool equal(const Value& a, const Value& b) {
  if (a.number() && b.number()) {
    if (a.get<double>() || b.get<double>()) return a.real() == b.real();
    return a.integer("") == b.integer("");
  }
  if (a.string() && b.string()) return *a.string() == *b.string();
  if (a.undefined() || a.none()) return a.undefined() ? b.undefined() : b.none();
  if (const Sequence* s = a.sequence(), *t = b.sequence(); s && t) {
    if (s->kind == SequenceKind::stream || t->kind == SequenceKind::stream)
      return s->items == t->items;
    return s->kind == t->kind && std::ranges::equal(*s->items, *t->items, equal);
  }
  if (const Dict* d = a.dict(), *e = b.dict(); d && e)
    return d->items().size() == e->items().size() &&
           std::ranges::all_of(d->items(), [&](const auto& item) {
             const Value* other = e->find(item.first);
             return other && equal(item.second, *other);
           });
  if (const auto* n = a.get<std::shared_ptr<Namespace>>(), *m = b.get<std::shared_ptr<Namespace>>();
      n && m)
    return *n == *m;
  return false;
}

int order(const Value& a, const Value& b) {
  if (a.number() && b.number()) {
    if (a.get<double>() || b.get<double>()) return a.real() < b.real() ? -1 : a.real() > b.real();
    return a.integer("") < b.integer("") ? -1 : a.integer("") > b.integer("");
  }
  if (a.string() && b.string()) return a.string()->compare(*b.string());
  if (const Sequence* s = a.sequence(), *t = b.sequence(); s && t && s->kind == t->kind) {
    for (std::size_t i = 0; i < std::min(s->items->size(), t->items->size()); ++i)
      if (!equal((*s->items)[i], (*t->items)[i])) return order((*s->items)[i], (*t->items)[i]);
    return s->items->size() < t->items->size() ? -1 : s->items->size() > t->items->size();
  }
  throw Problem("values of types " + std::string(a.type()) + " and " + std::string(b.type()) +
                " have no order");
}

bool contains(const Value& container, const Value& item) {
  if (const std::string* s = container.string()) {
    if (!item.string())
      throw Problem("only a string can be in a string, got a value of type " +
                    std::string(item.type()));
    return place_of(*s, *item.string()) != s->npos;
  }
  if (const Dict* d = container.dict()) return d->find(item);
  if (container.undefined()) return false;
  const List items = items_of(container);
  return std::ranges::any_of(items, [&](const Value& v) { return equal(v, item); });
}

std::int64_t length(const Value& value) {
  if (value.undefined()) return 0;
  if (const std::string* s = value.string())
    return static_cast<std::int64_t>(count_code_points(*s));
  if (const Sequence* s = value.sequence(); s && s->kind != SequenceKind::stream)
    return std::ssize(*s->items);
  if (const Dict* d = value.dict()) return std::ssize(d->items());
  throw Problem("a value of type " + std::string(value.type()) +
                " has no length; expected a string, a list or a dictionary");
}

List items_of(const Value& value) {
  if (value.undefined()) return {};
  List items;
  if (const std::string* s = value.string()) {
    check_size(sizeof(Value) * s->size());
    std::map<std::string_view, Value> characters;  // which equal ones share
    for (std::string_view rest = *s; !rest.empty();) {
      const std::string_view one = rest.substr(0, first_code_point(rest).bytes);
      items.push_back(characters.try_emplace(one, one).first->second);
      rest.remove_prefix(one.size());
    }
  } else if (const Sequence* q = value.sequence()) {
    items = *q->items;
    if (q->kind == SequenceKind::stream) q->items->clear();
  } else if (const Dict* d = value.dict()) {
    for (const auto& [key, v] : d->items()) items.push_back(key);
  } else {
    throw Problem("a value of type " + std::string(value.type()) +
                  " cannot be iterated; expected a list, a string or a dictionary");
  }
  return items;
}

Value item(const Value& object, const Value& key) {
  if (const Dict* d = object.dict()) {
    const bool hashable = key.string() || key.number() || key.none() ||
                          (key.sequence() && key.sequence()->kind == SequenceKind::tuple);
    const Value* found = hashable ? d->find(key) : nullptr;
    if (found) return *found;
    return Undefined{"the dictionary has no item " +
                     (hashable ? in_quotes(text_of(key)) : "of a key of this type")};
  }
  const bool indexed =
      object.string() || (object.sequence() && object.sequence()->kind != SequenceKind::stream);
  if (indexed && (key.get<std::int64_t>() || key.get<bool>())) {
    const std::int64_t size = length(object);
    std::int64_t index = key.integer("index");
    if (index < 0) index += size;
    if (index < 0 || index >= size)
      return Undefined{"index " + text_of(key) + " is outside a " + std::string(object.type()) +
                       " of " + std::to_string(size)};
    if (const Sequence* s = object.sequence()) return (*s->items)[static_cast<std::size_t>(index)];
    const std::u32string points = code_points(*object.string());
    return utf8(std::u32string_view(points).substr(static_cast<std::size_t>(index), 1));
  }
  return Undefined{"a value of type " + std::string(object.type()) + " has no item " +
                   (key.string() || key.number() ? in_quotes(text_of(key)) : "of this key")};
}

Value slice(const Value& object, const Value& begin, const Value& end, const Value& step) {
  const Sequence* const sequence = object.sequence();
  if (!object.string() && !(sequence && sequence->kind != SequenceKind::stream))
    return Undefined{"a value of type " + std::string(object.type()) + " cannot be sliced"};
  const std::u32string points = object.string() ? code_points(*object.string()) : U"";
  const std::int64_t size = sequence ? std::ssize(*sequence->items) : std::ssize(points);
  const auto given = [](const Value& v) { return !v.undefined() && !v.none(); };
  const std::int64_t by = given(step) ? step.integer("slice") : 1;
  if (by == 0) throw Problem("the step of a slice is 0");
  const std::int64_t low = by > 0 ? 0 : -1, high = by > 0 ? size : size - 1;
  const auto bound = [&](const Value& v, std::int64_t otherwise) {
    if (!given(v)) return otherwise;
    const std::int64_t at = v.integer("slice");
    return at < 0 ? std::max(at < -size ? low : at + size, low) : std::min(at, high);
  };
  const std::int64_t first = bound(begin, by > 0 ? low : high),
                     last = bound(end, by > 0 ? high : low);
  List items;
  std::u32string text;
  for (std::int64_t i = first; by > 0 ? i < last : i > last;) {
    if (sequence)
      items.push_back((*sequence->items)[static_cast<std::size_t>(i)]);
    else
      text += points[static_cast<std::size_t>(i)];
    if (by > size || by < -size) break;
    i += by;
  }
  return sequence ? Value::sequence(std::move(items), sequence->kind) : Value(utf8(text));
}

}  // namespace tfm::text::jinja
