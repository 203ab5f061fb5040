#pragma once
// The values of a template: Python's, as far as Jinja hands them to a template. None of them
// changes once it is made, except the members of a namespace and what is left of a stream.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tfm::text::jinja {

// What is wrong with an operation; the evaluator adds the place.
struct Problem : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// A value or a template's work is larger than what is allowed.
struct Exceeded : Problem {
  using Problem::Problem;
};

class Value;
using List = std::vector<Value>;
class Dict;
struct Function;
struct Loop;
using Namespace = std::map<std::string, Value>;

struct Undefined {
  std::string what;  // "'x' is undefined"
};
// stream: what map, select and the like make. It is true, has no length, and is read once.
enum class SequenceKind : std::uint8_t { list, tuple, stream };
struct Sequence {
  SequenceKind kind;
  std::shared_ptr<List> items;
  int depth;
  std::size_t size;
};
using StringPointer = std::shared_ptr<const std::string>;
using DictPointer = std::shared_ptr<const Dict>;

class Value {
 public:
  Value() : held_(Undefined{"the value is undefined"}) {}
  Value(Undefined u) : held_(std::move(u)) {}
  Value(std::nullptr_t) : held_(nullptr) {}  // None
  Value(bool b) : held_(b) {}
  Value(std::int64_t i) : held_(i) {}
  Value(double d) : held_(d) {}
  Value(std::string s);
  Value(std::string_view s) : Value(std::string(s)) {}
  Value(const char* s) : Value(std::string(s)) {}
  Value(Dict d);
  Value(std::shared_ptr<const Function> f) : held_(std::move(f)) {}
  Value(std::shared_ptr<Namespace> n) : held_(std::move(n)) {}
  Value(std::shared_ptr<const Loop> l) : held_(std::move(l)) {}
  static Value sequence(List items, SequenceKind kind = SequenceKind::list);

  template <class T>
  const T* get() const {
    return std::get_if<T>(&held_);
  }
  const std::string* string() const;  // null: it is none
  const Sequence* sequence() const { return get<Sequence>(); }
  const Dict* dict() const;
  bool undefined() const { return get<Undefined>(); }
  bool none() const { return get<std::nullptr_t>(); }
  bool number() const { return get<bool>() || get<std::int64_t>() || get<double>(); }
  // The integer of an integer or a boolean; Problem for anything else.
  std::int64_t integer(const char* what) const;
  double real() const;  // of a number
  // "str", "int", ...: what Python calls its type.
  std::string_view type() const;
  // The levels of values that hold others. A namespace changes after it is made, and counts as so
  // many that it can hold none.
  int depth() const;
  std::size_t size() const;     // bytes, with those of all that it holds
  std::size_t breadth() const;  // bytes, without those of what it holds

 private:
  std::variant<Undefined, std::nullptr_t, bool, std::int64_t, double, StringPointer, Sequence,
               DictPointer, std::shared_ptr<const Function>, std::shared_ptr<Namespace>,
               std::shared_ptr<const Loop>>
      held_;
};

// Keys in the order in which they were first set.
class Dict {
 public:
  // Problem for a key that Python cannot hash.
  void set(Value key, Value value);
  const Value* find(const Value& key) const;  // null: there is none
  const std::vector<std::pair<Value, Value>>& items() const { return items_; }
  int depth() const { return depth_; }
  std::size_t size() const { return size_; }

 private:
  std::vector<std::pair<Value, Value>> items_;
  std::map<std::string, std::size_t> index_;
  int depth_ = 1;
  std::size_t size_ = sizeof(Value);
};

struct Arguments {
  List positional;
  std::vector<std::pair<std::string, Value>> named;
  // Parameter `index`, called `name`; null: it is not given.
  const Value* find(std::size_t index, std::string_view name) const;
  Value value(std::size_t index, std::string_view name, Value otherwise) const;
  const Value& required(std::size_t index, std::string_view name) const;
  // Problem for more arguments, or other names.
  void expect(std::initializer_list<std::string_view> names) const;
};

struct Function {
  std::string name;
  std::function<Value(const Arguments&)> call;
  int depth = 0;         // of the object of a method
  std::size_t cost = 0;  // bytes that a call looks through, without those of arguments
};

// The variable `loop`.
struct Loop {
  std::shared_ptr<const List> items;
  std::size_t index = 0;
  int depth = 0;
};

// A value that is nested deeper or is larger is a Problem, Exceeded.
inline constexpr int kDeepest = 100, kDepthOfNamespace = 80;
inline constexpr std::size_t kLargest = std::size_t{1} << 23;
void check_size(std::size_t size);
int deeper(int inner);                  // inner + 1
void check_member(const Value& value);  // of a namespace

// A JSON text, its members in their order. Error(input), which begins with `where`, as
// io::parse_json().
Value parse_json(std::string_view text, const std::string& where);

}  // namespace tfm::text::jinja
