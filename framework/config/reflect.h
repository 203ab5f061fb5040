#pragma once
// A struct of settings describes its keys once, to a FieldVisitor. Reading, dumping, the reference
// page and the suggestions for misspelled keys are all visitors of that description.
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "config/options.h"
#include "config/yaml.h"

namespace tfm::config {

// Counts and sizes admit the suffixes k M G Ki Mi Gi.
enum class FieldKind : std::uint8_t { integer, count, size, real, boolean, choice, text };

struct Field {
  std::string_view name, help;
  FieldKind kind = FieldKind::text;
  double low = -std::numeric_limits<double>::infinity(),
         high = std::numeric_limits<double>::infinity();
  bool low_open = false, high_open = false;  // bound excluded
  std::string_view automatic = {};           // stands for 0 or an empty text
  // The default as the reference page names it, if it is not a fixed value.
  std::string_view fallback = {};
  bool required = false;                       // must be set, here or before reading
  std::vector<std::string_view> instead = {};  // for a section: keys that provide what it requires
  std::vector<std::string_view> choices = {};
};

class FieldVisitor;
class FieldReader;

constexpr int kAnyNumber = std::numeric_limits<int>::max();

// A value with a form of its own. `read` is called with a node that is no map; with maps too if
// `keys` is empty.
struct SpecialField {
  std::string_view type;  // for the reference page
  std::function<void(FieldReader&, const YamlNode&)> read;
  std::function<std::string()> flow;             // the value as flow YAML
  std::function<void(FieldVisitor&)> keys = {};  // keys of its map form
  std::function<bool()> missing = {};            // required, and not set yet
  // For schema and completion: a value or a list item, and how many items a list may have.
  Field item;
  bool single = true;                                 // may be a single value
  int least = 0, most = 0;                            // 0: no list
  std::function<void(FieldVisitor&)> item_keys = {};  // set if an item may be a map
  bool named = false;                                 // a map from names to item_keys
  // Sets of item_keys of which a map must have one, as lists of JSON strings.
  std::vector<std::string> item_needs = {};
};

class FieldVisitor {
 public:
  using Body = std::function<void(FieldVisitor&)>;
  virtual ~FieldVisitor() = default;
  virtual void value(const Field&, std::int64_t&) = 0;
  virtual void value(const Field&, std::uint64_t&) = 0;
  virtual void value(const Field&, double&) = 0;
  virtual void value(const Field&, bool&) = 0;
  virtual void value(const Field&, std::string&) = 0;
  // One of the words of an option: those that `f` lists, or all if it lists none.
  template <class E>
  requires std::is_enum_v<E>
  void value(Field f, E& x) {
    f.kind = FieldKind::choice;
    if (f.choices.empty())
      for (std::string_view w : words(E{}))
        if (!w.empty()) f.choices.push_back(w);
    std::string text = word(x);
    value(f, text);
    if (const auto read = value_of<E>(text)) x = *read;
  }
  virtual void special(const Field&, const SpecialField&) = 0;
  // `absent`: an optional section that is not set.
  virtual void section(const Field&, const Body&, bool absent = false) = 0;
};

// Knows the dotted keys of what it visits.
class KeyVisitor : public FieldVisitor {
 public:
  void special(const Field& f, const SpecialField& s) override {
    if (s.keys) inside(f, s.keys);
  }
  void section(const Field& f, const Body& body, bool) override { inside(f, body); }

 protected:
  std::string key_of(const Field& f) const { return path_ + std::string(f.name); }
  void inside(const Field& f, const Body& body) {
    const std::string outer = path_;
    path_ += std::string(f.name) + ".";
    body(*this);
    path_ = outer;
  }

 private:
  std::string path_;
};

using Describe = FieldVisitor::Body;
std::string dump_fields(const Describe& fields);              // block YAML
std::vector<std::string> field_keys(const Describe& fields);  // dotted, sections included
// Rows of a Markdown table: key, type, default, meaning.
std::string field_reference(const Describe& fields);
std::string field_schema(const std::string& title, const Describe& fields);  // JSON, draft 7
using RangeReport = std::function<void(const std::string& key, const std::string& problem)>;
// Reports each value that is out of range, by its dotted key.
void check_ranges(const Describe& fields, const RangeReport& report);
std::string yaml_of(const Field& field, std::int64_t value);
std::string yaml_of(const Field& field, std::uint64_t value);
std::string yaml_of(const Field& field, double value);
std::string yaml_of(const Field& field, bool value);
std::string yaml_of(const Field& field, const std::string& value);
// What is wrong with a number that is out of range; empty: it is in range.
std::string range_problem(const Field& field, std::int64_t value);
std::string range_problem(const Field& field, std::uint64_t value);
std::string range_problem(const Field& field, double value);
std::string expected_value(const Field& field);  // "a number >= 0 and < 1", "one of a, b"

}  // namespace tfm::config
