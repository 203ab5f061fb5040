#include <algorithm>
#include <cmath>

#include "core/strings.h"
#include "text/jinja/filters.h"

namespace tfm::text::jinja {
namespace {

using Test = bool (*)(const Value&, const Arguments&);
using V = const Value&;
using A = const Arguments&;

V other(A a) { return a.required(0, "other"); }
bool iterable(V v) { return v.undefined() || v.string() || v.sequence() || v.dict(); }
bool integer(V v) { return v.get<std::int64_t>(); }

const std::pair<std::string_view, Test> tests[] = {
    {"defined", [](V v, A) { return !v.undefined(); }},
    {"undefined", [](V v, A) { return v.undefined(); }},
    {"none", [](V v, A) { return v.none(); }},
    {"boolean", [](V v, A) { return v.get<bool>() != nullptr; }},
    {"true", [](V v, A) { return v.get<bool>() && *v.get<bool>(); }},
    {"false", [](V v, A) { return v.get<bool>() && !*v.get<bool>(); }},
    {"integer", [](V v, A) { return integer(v); }},
    {"float", [](V v, A) { return v.get<double>() != nullptr; }},
    {"number", [](V v, A) { return v.number(); }},
    {"string", [](V v, A) { return v.string() != nullptr; }},
    {"mapping", [](V v, A) { return v.dict() != nullptr; }},
    {"iterable", [](V v, A) { return iterable(v); }},
    {"sequence",
     [](V v, A) {
       return iterable(v) && !(v.sequence() && v.sequence()->kind == SequenceKind::stream);
     }},
    {"callable", [](V v, A) { return v.get<std::shared_ptr<const Function>>() != nullptr; }},
    {"odd", [](V v, A) { return v.integer("odd") % 2 != 0; }},
    {"even", [](V v, A) { return v.integer("even") % 2 == 0; }},
    {"divisibleby",
     [](V v, A a) {
       const std::int64_t by = a.required(0, "num").integer("divisibleby");
       if (by == 0) throw Problem("division by zero");
       return by == -1 || v.integer("divisibleby") % by == 0;
     }},
    {"lower",
     [](V v, A) { return text_of(v) == lower(text_of(v)) && text_of(v) != upper(text_of(v)); }},
    {"upper",
     [](V v, A) { return text_of(v) == upper(text_of(v)) && text_of(v) != lower(text_of(v)); }},
    {"sameas", [](V v, A a) { return v.type() == other(a).type() && equal(v, other(a)); }},
    {"in", [](V v, A a) { return contains(a.required(0, "seq"), v); }},
    {"==", [](V v, A a) { return equal(v, other(a)); }},
    {"!=", [](V v, A a) { return !equal(v, other(a)); }},
    {">", [](V v, A a) { return order(v, other(a)) > 0; }},
    {">=", [](V v, A a) { return order(v, other(a)) >= 0; }},
    {"<", [](V v, A a) { return order(v, other(a)) < 0; }},
    {"<=", [](V v, A a) { return order(v, other(a)) <= 0; }},
};
// Second names, and those that they stand for.
const std::pair<std::string_view, std::string_view> aliases[] = {
    {"eq", "=="}, {"equalto", "=="}, {"ne", "!="},      {"gt", ">"}, {"greaterthan", ">"},
    {"ge", ">="}, {"lt", "<"},       {"lessthan", "<"}, {"le", "<="}};

}  // namespace

bool tested(const std::string& name, const Value& subject, const Arguments& arguments) {
  const auto alias =
      std::ranges::find(aliases, name, &std::pair<std::string_view, std::string_view>::first);
  const std::string_view known = alias == std::end(aliases) ? name : alias->second;
  const auto found = std::ranges::find(tests, known, &std::pair<std::string_view, Test>::first);
  if (found != std::end(tests)) return found->second(subject, arguments);
  std::vector<std::string_view> names;
  for (const auto& [test, function] : tests) names.push_back(test);
  throw Problem("the test " + in_quotes(name) + " is not supported; expected one of " +
                join(names));
}

}  // namespace tfm::text::jinja
