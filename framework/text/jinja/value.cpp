#include "text/jinja/value.h"

#include <algorithm>

#include "text/jinja/operations.h"

namespace tfm::text::jinja {
namespace {

std::size_t sum_of(std::size_t a, std::size_t b) {
  check_size(a + b);
  return a + b;
}

// Equal for the keys that Python takes for equal, as 1 and True.
std::string hash_key(const Value& key) {
  if (const std::string* s = key.string()) return "s" + *s;
  if (key.none()) return "n";
  if (key.number()) return "d" + float_text(key.real());
  if (const Sequence* s = key.sequence(); s && s->kind == SequenceKind::tuple) {
    std::string text = "t";
    for (const Value& v : *s->items) {
      const std::string one = hash_key(v);
      text += std::to_string(one.size()) + ":" + one;
    }
    return text;
  }
  throw Problem("a value of type " + std::string(key.type()) +
                " cannot be a key of a dictionary; expected a string or a number");
}

}  // namespace

int deeper(int inner) {
  if (inner >= kDeepest)
    throw Exceeded("lists and dictionaries are nested deeper than " + std::to_string(kDeepest) +
                   " levels");
  return inner + 1;
}

void check_member(const Value& value) {
  if (value.depth() >= kDepthOfNamespace)
    throw Problem("a namespace cannot hold a namespace, or a value of more than " +
                  std::to_string(kDepthOfNamespace) + " levels");
}

void check_size(std::size_t size) {
  if (size > kLargest)
    throw Exceeded("the value is larger than " + std::to_string(kLargest >> 20) + " MiB");
}

Value::Value(std::string s) {
  check_size(s.size());
  held_ = std::make_shared<const std::string>(std::move(s));
}

Value::Value(Dict d) : held_(std::make_shared<const Dict>(std::move(d))) {}

Value Value::sequence(List items, SequenceKind kind) {
  int inner = 0;
  std::size_t size = sizeof(Value);
  for (const Value& v : items) inner = std::max(inner, v.depth()), size = sum_of(size, v.size());
  Value value;
  value.held_ = Sequence{kind, std::make_shared<List>(std::move(items)), deeper(inner), size};
  return value;
}

const std::string* Value::string() const {
  const auto* s = get<StringPointer>();
  return s ? s->get() : nullptr;
}

const Dict* Value::dict() const {
  const auto* d = get<DictPointer>();
  return d ? d->get() : nullptr;
}

std::int64_t Value::integer(const char* what) const {
  if (const auto* i = get<std::int64_t>()) return *i;
  if (const auto* b = get<bool>()) return *b;
  throw Problem(std::string(what) + ": expected an integer, got a value of type " +
                std::string(type()));
}

double Value::real() const {
  if (const auto* d = get<double>()) return *d;
  return static_cast<double>(integer("number"));
}

std::string_view Value::type() const {
  static constexpr std::string_view names[] = {"Undefined", "NoneType",  "bool",       "int",
                                               "float",     "str",       "list",       "dict",
                                               "function",  "Namespace", "LoopContext"};
  if (const Sequence* s = sequence())
    return s->kind == SequenceKind::list    ? "list"
           : s->kind == SequenceKind::tuple ? "tuple"
                                            : "generator";
  return names[held_.index()];
}

int Value::depth() const {
  if (const Sequence* s = sequence()) return s->depth;
  if (const Dict* d = dict()) return d->depth();
  if (const auto* f = get<std::shared_ptr<const Function>>()) return (*f)->depth;
  if (const auto* l = get<std::shared_ptr<const Loop>>()) return (*l)->depth;
  return get<std::shared_ptr<Namespace>>() ? kDepthOfNamespace : 0;
}

std::size_t Value::size() const {
  if (const Sequence* s = sequence()) return s->size;
  if (const Dict* d = dict()) return d->size();
  return breadth();
}

std::size_t Value::breadth() const {
  if (const std::string* s = string()) return sizeof(Value) + s->size();
  if (const Sequence* s = sequence()) return sizeof(Value) * (1 + s->items->size());
  if (const Dict* d = dict()) return sizeof(Value) * (1 + 2 * d->items().size());
  return sizeof(Value);
}

void Dict::set(Value key, Value value) {
  size_ = sum_of(size_, sum_of(key.size(), value.size()));
  depth_ = std::max(depth_, deeper(std::max(key.depth(), value.depth())));
  const auto [at, added] = index_.emplace(hash_key(key), items_.size());
  if (added)
    items_.emplace_back(std::move(key), std::move(value));
  else
    items_[at->second].second = std::move(value);
}

const Value* Dict::find(const Value& key) const {
  const auto found = index_.find(hash_key(key));
  return found == index_.end() ? nullptr : &items_[found->second].second;
}

const Value* Arguments::find(std::size_t index, std::string_view name) const {
  if (index < positional.size()) return &positional[index];
  const auto at = std::ranges::find(named, name, &std::pair<std::string, Value>::first);
  return at == named.end() ? nullptr : &at->second;
}

Value Arguments::value(std::size_t index, std::string_view name, Value otherwise) const {
  const Value* found = find(index, name);
  return found ? *found : otherwise;
}

const Value& Arguments::required(std::size_t index, std::string_view name) const {
  if (const Value* found = find(index, name)) return *found;
  throw Problem("argument '" + std::string(name) + "' is missing");
}

void Arguments::expect(std::initializer_list<std::string_view> names) const {
  if (positional.size() > names.size())
    throw Problem("found " + std::to_string(positional.size()) + " arguments; expected at most " +
                  std::to_string(names.size()));
  for (const auto& [name, value] : named)
    if (std::ranges::find(names, name) == names.end())
      throw Problem("argument '" + name + "' is not known here");
}

}  // namespace tfm::text::jinja
