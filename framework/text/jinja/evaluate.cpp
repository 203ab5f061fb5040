// Evaluates the expressions of a template.
#include <algorithm>
#include <array>

#include "core/strings.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/filters.h"

namespace tfm::text::jinja {
namespace {

using Kind = Expression::Kind;

Value function(const std::string& name, std::function<Value(const Arguments&)> call) {
  return std::make_shared<const Function>(Function{name, std::move(call)});
}

Value range(const Arguments& a) {
  constexpr std::int64_t most = 100'000;  // that of Jinja's sandbox
  a.expect({"", "", ""});
  const std::int64_t one = a.required(0, "stop").integer("range");
  const std::int64_t first = a.positional.size() > 1 ? one : 0;
  const std::int64_t last = a.positional.size() > 1 ? a.positional[1].integer("range") : one;
  const std::int64_t step = a.value(2, "", std::int64_t{1}).integer("range");
  if (step == 0) throw Problem("range: the step is 0");
  List items;
  for (std::int64_t i = first; step > 0 ? i < last : i > last;) {
    if (std::ssize(items) == most)
      throw Problem("range: more than " + std::to_string(most) + " items");
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value::sequence(std::move(items));
}

Dict dict_of(const Arguments& a) {
  Dict dict;
  for (const Value& v : a.positional) {
    if (const Dict* d = v.dict()) {
      for (const auto& [key, value] : d->items()) dict.set(key, value);
      continue;
    }
    for (const Value& item : items_of(v)) {
      const List pair = items_of(item);
      if (pair.size() != 2) throw Problem("dict: expected pairs of a key and a value");
      dict.set(pair[0], pair[1]);
    }
  }
  for (const auto& [key, value] : a.named) dict.set(key, value);
  return dict;
}

Value make_namespace(const Arguments& a) {
  auto space = std::make_shared<Namespace>();
  const Dict dict = dict_of(a);
  for (const auto& [key, value] : dict.items()) {
    const std::string name = text_of(key);
    if (name.starts_with('_')) throw Problem("members of a namespace cannot begin with _");
    check_member(value);
    (*space)[name] = value;
  }
  return space;
}

Value formatted_time(const Arguments& a, std::time_t now) {
  const std::string format = text_of(a.required(0, "format"));
  std::array<char, 1024> text{};
  std::tm local{};
  ::localtime_r(&now, &local);
  const std::size_t size = std::strftime(text.data(), text.size(), format.c_str(), &local);
  if (size == 0 && !format.empty()) throw Problem("strftime_now: the format gives no text");
  return std::string(text.data(), size);
}

}  // namespace

Evaluator::Evaluator(const Dict& variables, std::optional<std::time_t> now)
    : variables_(variables),
      out_(&result_.text),
      most_steps_(2'000'000 + 8 * variables.size()),
      spend_([this](std::size_t n) { spend(n); }) {
  globals_["range"] = function("range", range);
  globals_["dict"] = function("dict", [](const Arguments& a) { return Value(dict_of(a)); });
  globals_["namespace"] = function("namespace", make_namespace);
  globals_["raise_exception"] = function("raise_exception", [](const Arguments& a) -> Value {
    throw Problem("the template refuses the conversation: " + text_of(a.required(0, "message")));
  });
  globals_["strftime_now"] = Undefined{
      "strftime_now is not available in training, since ids must be the same at every start; "
      "expected a template that writes a fixed date, or asks `strftime_now is defined`"};
  if (now)
    globals_["strftime_now"] =
        function("strftime_now", [now](const Arguments& a) { return formatted_time(a, *now); });
  const Value* const messages = variables.find("messages");
  if (!messages || !messages->sequence()) return;
  const List& all = *messages->sequence()->items;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].dict()) messages_.emplace(all[i].dict(), i);
  result_.messages.resize(all.size());
}

Evaluator::~Evaluator() {
  for (const ScopePointer& scope : with_macros_) scope->variables.clear();
}

Value Evaluator::lookup(const std::string& name, const Scope* scope) const {
  for (; scope; scope = scope->parent.get())
    if (const auto found = scope->variables.find(name); found != scope->variables.end())
      return found->second;
  if (const Value* found = variables_.find(name)) return *found;
  if (const auto found = globals_.find(name); found != globals_.end()) return found->second;
  return Undefined{in_quotes(name) + " is undefined"};
}

Value Evaluator::evaluate(const Expression& e, const ScopePointer& scope) {
  const Deeper deeper(*this);
  spend(0);
  switch (e.kind) {
    case Kind::constant:
      return e.value;
    case Kind::name:
      at_ = e.at;
      return lookup(e.text, scope.get());
    case Kind::list:
    case Kind::tuple: {
      List items;
      for (const ExpressionPointer& part : e.parts) items.push_back(evaluate(*part, scope));
      at_ = e.at;
      return Value::sequence(std::move(items),
                             e.kind == Kind::list ? SequenceKind::list : SequenceKind::tuple);
    }
    case Kind::dict: {
      Dict dict;
      for (std::size_t i = 0; i < e.parts.size(); i += 2) {
        Value key = evaluate(*e.parts[i], scope);
        at_ = e.parts[i]->at;
        dict.set(std::move(key), evaluate(*e.parts[i + 1], scope));
      }
      return dict;
    }
    case Kind::both: {
      Value left = evaluate(*e.parts[0], scope);
      return truth(left) ? evaluate(*e.parts[1], scope) : left;
    }
    case Kind::either: {
      Value left = evaluate(*e.parts[0], scope);
      return truth(left) ? left : evaluate(*e.parts[1], scope);
    }
    case Kind::choice:
      if (truth(evaluate(*e.parts[0], scope))) return evaluate(*e.parts[1], scope);
      if (e.parts[2]) return evaluate(*e.parts[2], scope);
      return Undefined{"the condition is false, and there is no else"};
    default:
      return operation(e, scope);
  }
}

Value Evaluator::operation(const Expression& e, const ScopePointer& scope) {
  if (e.kind == Kind::call) return call(e, scope);
  if (e.kind == Kind::compare) return compare(e, scope);
  if (e.kind == Kind::item) return subscript(e, scope);
  const Value first = evaluate(*e.parts[0], scope);
  at_ = e.at;
  switch (e.kind) {
    case Kind::attribute:
      return attribute_or_item(first, e.text, spend_);
    case Kind::filter:
      return filter(e, first, scope);
    case Kind::test: {
      const Arguments given = arguments(e, scope);
      at_ = e.at;
      spend(read_by(e, first, !given.positional.empty()));
      return tested(e.text, first, given);
    }
    case Kind::negate:
      return !truth(first);
    case Kind::sign:
      return e.text == "-" ? negative(first) : arithmetic("+", std::int64_t{0}, first, spend_);
    case Kind::concat: {
      std::string text = text_of(first);
      spend(text.size());
      for (std::size_t i = 1; i < e.parts.size(); ++i) {
        const Value next = evaluate(*e.parts[i], scope);
        at_ = e.at;
        append(text, text_of(next), spend_);
      }
      return text;
    }
    default: {
      const Value second = evaluate(*e.parts[1], scope);
      at_ = e.at;
      spend(first.size() + second.size());
      return arithmetic(e.text, first, second, spend_);
    }
  }
}

Value Evaluator::subscript(const Expression& e, const ScopePointer& scope) {
  const Value object = evaluate(*e.parts[0], scope);
  const Expression& key = *e.parts[1];
  if (key.kind != Kind::slice) {
    const Value index = evaluate(key, scope);
    at_ = e.at;
    spend(object.string() ? object.size() : 0);
    return item_or_attribute(object, index, spend_);
  }
  std::array<Value, 3> bounds;
  for (std::size_t i = 0; i < bounds.size(); ++i)
    bounds[i] = key.parts[i] ? evaluate(*key.parts[i], scope) : Value(nullptr);
  at_ = e.at;
  if (const Undefined* u = object.get<Undefined>()) throw Problem(u->what);
  spend(object.breadth());
  return slice(object, bounds[0], bounds[1], bounds[2]);
}

Value Evaluator::compare(const Expression& e, const ScopePointer& scope) {
  Value left = evaluate(*e.parts[0], scope);
  for (std::size_t i = 0; i < e.names.size(); ++i) {
    Value right = evaluate(*e.parts[i + 1], scope);
    at_ = e.at;
    const std::string& op = e.names[i];
    spend(left.size() + (op.ends_with("in") && right.dict() ? 0 : right.size()));
    Arguments other;
    other.positional.push_back(right);
    const bool holds = op == "in"       ? contains(right, left)
                       : op == "not in" ? !contains(right, left)
                                        : tested(op, left, other);
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

Arguments Evaluator::arguments(const Expression& e, const ScopePointer& scope) {
  Arguments given;
  const std::size_t named = e.parts.size() - e.names.size();
  for (std::size_t i = 1; i < e.parts.size(); ++i) {
    Value value = evaluate(*e.parts[i], scope);
    at_ = e.parts[i]->at;
    if (i < named) {
      given.positional.push_back(std::move(value));
    } else if (const std::string& name = e.names[i - named]; name == "*") {
      for (Value& item : items_of(value)) given.positional.push_back(std::move(item));
    } else if (name == "**") {
      if (!value.dict()) throw Problem("expected a dictionary behind **");
      for (const auto& [key, v] : value.dict()->items()) given.named.emplace_back(text_of(key), v);
    } else {
      given.named.emplace_back(name, std::move(value));
    }
  }
  return given;
}

Value Evaluator::filter(const Expression& e, const Value& subject, const ScopePointer& scope) {
  const Arguments given = arguments(e, scope);
  at_ = e.at;
  spend(read_by(e, subject, true));
  Value result = filtered(e.text, subject, given, spend_);
  spend(result.breadth());
  return result;
}

std::size_t Evaluator::read_by(const Expression& e, const Value& value, bool with_arguments) {
  static constexpr std::string_view brief[] = {"length", "count", "default", "d", "first", "last"};
  const bool type_only =
      e.kind == Kind::test && !with_arguments && e.text != "lower" && e.text != "upper";
  if (type_only) return 0;
  return std::ranges::find(brief, e.text) != std::end(brief) ? value.breadth() : value.size();
}

Value Evaluator::filter_chain(const Expression& e, const std::string& text,
                              const ScopePointer& scope) {
  return filter(e, e.parts[0] ? filter_chain(*e.parts[0], text, scope) : Value(text), scope);
}

Value Evaluator::call(const Expression& e, const ScopePointer& scope, const Arguments& more) {
  const Value callee = evaluate(*e.parts[0], scope);
  Arguments given = arguments(e, scope);
  given.named.insert(given.named.end(), more.named.begin(), more.named.end());
  at_ = e.at;
  if (const Undefined* u = callee.get<Undefined>()) throw Problem(u->what);
  const auto* const f = callee.get<std::shared_ptr<const Function>>();
  if (!f) throw Problem("a value of type " + std::string(callee.type()) + " cannot be called");
  std::size_t size = (*f)->cost;
  for (const Value& v : given.positional) size += v.size();
  spend(size);
  Value result = (*f)->call(given);
  spend(result.breadth());
  return result;
}

}  // namespace tfm::text::jinja
