#include "text/jinja/filters.h"

#include <algorithm>
#include <utility>

#include "core/strings.h"
#include "text/jinja/conversions.h"

namespace tfm::text::jinja {

Value by_path(const Value& object, const Value& path, const Spend& spend, const Value& otherwise) {
  if (!path.string()) return item_or_attribute(object, path, spend);
  Value value = object;
  for (std::string_view rest = *path.string();;) {
    const std::size_t end = std::min(rest.find('.'), rest.size());
    const std::string part(rest.substr(0, end));
    const bool digits =
        !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == part.npos;
    value = item_or_attribute(value, digits ? Value(std::int64_t{std::stol(part)}) : Value(part),
                              spend);
    if (value.undefined() && !otherwise.undefined()) value = otherwise;
    if (end == rest.size()) return value;
    rest.remove_prefix(end + 1);
  }
}

namespace {

using Filter = Value (*)(V, A, S);

Value stream(List items) { return Value::sequence(std::move(items), SequenceKind::stream); }

// What values are sorted and compared by: without their case, if they are strings.
Value sort_key(V value, bool case_sensitive) {
  return !case_sensitive && value.string() ? Value(lower(*value.string())) : value;
}
void sort_by(List& items, bool reverse, const std::function<Value(V)>& key) {
  std::vector<std::pair<Value, Value>> keyed;
  for (V v : items) keyed.emplace_back(key(v), v);
  std::ranges::stable_sort(keyed, [reverse](const auto& a, const auto& b) {
    return reverse ? order(b.first, a.first) < 0 : order(a.first, b.first) < 0;
  });
  for (std::size_t i = 0; i < items.size(); ++i) items[i] = keyed[i].second;
}

Value attribute_of(V value, A a, std::size_t index, S spend) {
  const Value path = a.value(index, "attribute", nullptr);
  return path.none() ? value : by_path(value, path, spend);
}

Value sort(V v, A a, S spend) {
  List items = items_of(v);
  sort_by(items, flag(a, 0, "reverse"), [&](V one) {
    return sort_key(attribute_of(one, a, 2, spend), flag(a, 1, "case_sensitive"));
  });
  return Value::sequence(std::move(items));
}

Value dictsort(V v, A a, S) {
  if (!v.dict())
    throw Problem("dictsort: expected a dictionary, got a value of type " + std::string(v.type()));
  List items;
  for (const auto& [key, value] : v.dict()->items())
    items.push_back(Value::sequence({key, value}, SequenceKind::tuple));
  const std::string by = text_of(a.value(1, "by", "key"));
  if (by != "key" && by != "value")
    throw Problem("dictsort: by: expected key or value, got " + in_quotes(by));
  sort_by(items, flag(a, 2, "reverse"), [&](V pair) {
    return sort_key((*pair.sequence()->items)[by == "value"], flag(a, 0, "case_sensitive"));
  });
  return Value::sequence(std::move(items));
}

Value unique(V v, A a, S spend) {
  List items;
  Dict seen;
  for (V one : items_of(v)) {
    const Value key = sort_key(attribute_of(one, a, 1, spend), flag(a, 0, "case_sensitive"));
    if (seen.find(key)) continue;
    seen.set(key, true);
    items.push_back(one);
  }
  return stream(std::move(items));
}

Value extreme(V v, A a, S spend, int sign) {
  Value best = Undefined{"the sequence is empty"}, best_key;
  bool first = true;
  for (V one : items_of(v)) {
    Value key = sort_key(attribute_of(one, a, 1, spend), flag(a, 0, "case_sensitive"));
    if (first || order(key, best_key) * sign > 0) best = one, best_key = key;
    first = false;
  }
  return best;
}

Value joined(V v, A a, S spend) {
  const std::string separator = text_of(a.value(0, "d", ""));
  std::string text;
  bool first = true;
  for (V one : items_of(v)) {
    if (!first) append(text, separator, spend);
    append(text, text_of(attribute_of(one, a, 1, spend)), spend);
    first = false;
  }
  return text;
}

Value total(V v, A a, S spend) {
  Value sum = a.value(1, "start", std::int64_t{0});
  for (V one : items_of(v)) sum = arithmetic("+", sum, attribute_of(one, a, 0, spend), spend);
  return sum;
}

// Arguments from `first` on, for a filter or a test that another one applies.
Arguments further(A a, std::size_t first) {
  Arguments rest{{}, a.named};
  for (std::size_t i = first; i < a.positional.size(); ++i)
    rest.positional.push_back(a.positional[i]);
  return rest;
}

Value map(V v, A a, S spend) {
  List items;
  const Value* const path = a.positional.empty() ? a.find(0, "attribute") : nullptr;
  const Value otherwise = a.value(~std::size_t{0}, "default", Value());
  for (V one : items_of(v)) {
    spend(1);
    if (!path) {
      items.push_back(
          filtered(text_of(a.required(0, "the name of a filter")), one, further(a, 1), spend));
      continue;
    }
    items.push_back(by_path(one, *path, spend, otherwise));
  }
  return stream(std::move(items));
}

Value selected(V v, A a, S spend, bool keep, bool by_attribute) {
  List items;
  const std::size_t at = by_attribute ? 1 : 0;
  for (V one : items_of(v)) {
    spend(1);
    const Value value =
        by_attribute ? by_path(one, a.required(0, "the name of an attribute"), spend) : one;
    const bool holds = a.positional.size() > at
                           ? tested(text_of(a.positional[at]), value, further(a, at + 1))
                           : truth(value);
    if (holds == keep) items.push_back(one);
  }
  return stream(std::move(items));
}

Value groupby(V v, A a, S spend) {
  List items = items_of(v), groups;
  const Value& path = a.required(0, "attribute");
  const auto key_of = [&](V one) {
    return sort_key(by_path(one, path, spend), flag(a, 2, "case_sensitive"));
  };
  sort_by(items, false, key_of);
  for (std::size_t i = 0; i < items.size();) {
    List group;
    const Value key = key_of(items[i]), named = by_path(items[i], path, spend);
    for (; i < items.size() && equal(key_of(items[i]), key); ++i) group.push_back(items[i]);
    groups.push_back(
        Value::sequence({named, Value::sequence(std::move(group))}, SequenceKind::tuple));
  }
  return Value::sequence(std::move(groups));
}

Value batch(V v, A a, S) {
  const std::int64_t size = a.required(0, "linecount").integer("batch");
  if (size < 1) throw Problem("batch: expected a size of at least 1");
  const Value fill = a.value(1, "fill_with", nullptr);
  List all, one;
  for (V item : items_of(v)) {
    if (std::ssize(one) == size) all.push_back(Value::sequence(std::exchange(one, {})));
    one.push_back(item);
  }
  if (!one.empty() && !fill.none()) {
    check_size(static_cast<std::size_t>(std::min(size, std::int64_t{1} << 40)) * sizeof(Value));
    one.resize(static_cast<std::size_t>(size), fill);
  }
  if (!one.empty()) all.push_back(Value::sequence(std::move(one)));
  return stream(std::move(all));
}

Value reversed(V v, A, S) {
  if (const std::string* s = v.string()) {
    std::u32string points = code_points(*s);
    std::ranges::reverse(points);
    return utf8(points);
  }
  List items = items_of(v);
  std::ranges::reverse(items);
  return stream(std::move(items));
}

Value end_of(V v, bool last) {
  const List items = items_of(v);
  if (items.empty()) return Undefined{"the sequence is empty"};
  return last ? items.back() : items.front();
}

Value items(V v, A, S) {
  if (v.undefined()) return stream({});
  if (!v.dict())
    throw Problem("items: expected a dictionary, got a value of type " + std::string(v.type()));
  List all;
  for (const auto& [key, value] : v.dict()->items())
    all.push_back(Value::sequence({key, value}, SequenceKind::tuple));
  return stream(std::move(all));
}

Value otherwise(V v, A a, S) {
  a.expect({"default_value", "boolean"});
  return v.undefined() || (flag(a, 1, "boolean") && !truth(v)) ? a.value(0, "default_value", "")
                                                               : v;
}

const std::pair<std::string_view, Filter> filters[] = {
    {"abs", absolute},
    {"attr", [](V v, A a, S c) { return attribute(v, text_of(a.required(0, "name")), c); }},
    {"batch", batch},
    {"capitalize", [](V v, A, S) { return Value(capitalized(text_of(v))); }},
    {"count", [](V v, A, S) { return Value(length(v)); }},
    {"d", otherwise},
    {"default", otherwise},
    {"dictsort", dictsort},
    {"e", escaped},
    {"escape", escaped},
    {"first", [](V v, A, S) { return end_of(v, false); }},
    {"float", to_real},
    {"format",
     [](V v, A a, S c) {
       return Value(formatted(text_of(v), Value::sequence(a.positional, SequenceKind::tuple), c));
     }},
    {"groupby", groupby},
    {"indent", indented},
    {"int", to_integer},
    {"items", items},
    {"join", joined},
    {"last", [](V v, A, S) { return end_of(v, true); }},
    {"length", [](V v, A, S) { return Value(length(v)); }},
    {"list", [](V v, A, S) { return Value::sequence(items_of(v)); }},
    {"lower", [](V v, A, S) { return Value(lower(text_of(v))); }},
    {"map", map},
    {"max", [](V v, A a, S c) { return extreme(v, a, c, 1); }},
    {"min", [](V v, A a, S c) { return extreme(v, a, c, -1); }},
    {"reject", [](V v, A a, S c) { return selected(v, a, c, false, false); }},
    {"rejectattr", [](V v, A a, S c) { return selected(v, a, c, false, true); }},
    {"replace",
     [](V v, A a, S c) {
       const Value most = a.value(2, "count", nullptr);
       return Value(replaced(text_of(v), text_of(a.required(0, "old")),
                             text_of(a.required(1, "new")),
                             most.none() ? -1 : most.integer("count"), c));
     }},
    {"reverse", reversed},
    {"round", rounded},
    {"safe", [](V v, A, S) { return Value(text_of(v)); }},
    {"select", [](V v, A a, S c) { return selected(v, a, c, true, false); }},
    {"selectattr", [](V v, A a, S c) { return selected(v, a, c, true, true); }},
    {"sort", sort},
    {"string", [](V v, A, S) { return Value(text_of(v)); }},
    {"sum", total},
    {"title", title},
    {"tojson", to_json},
    {"trim",
     [](V v, A a, S) {
       return Value(stripped(text_of(v), a.value(0, "chars", nullptr), true, true));
     }},
    {"unique", unique},
    {"upper", [](V v, A, S) { return Value(upper(text_of(v))); }},
};

}  // namespace

Value filtered(const std::string& name, const Value& subject, const Arguments& arguments,
               const Spend& spend) {
  const auto found = std::ranges::find(filters, name, &std::pair<std::string_view, Filter>::first);
  if (found != std::end(filters)) return found->second(subject, arguments, spend);
  std::vector<std::string_view> names;
  for (const auto& [filter, function] : filters) names.push_back(filter);
  throw Problem("the filter " + in_quotes(name) + " is not supported; expected one of " +
                join(names));
}

}  // namespace tfm::text::jinja
