#include "config/field_reader.h"

#include <algorithm>

namespace tfm::config {
namespace {

using Kind = YamlNode::Kind;

bool is_unset(std::int64_t x) { return x == 0; }
bool is_unset(std::uint64_t) { return false; }
bool is_unset(double x) { return x == 0; }
bool is_unset(bool) { return false; }
bool is_unset(const std::string& x) { return x.empty(); }

std::string_view parent_of(std::string_view dotted) {
  const auto dot = dotted.rfind('.');
  return dot == std::string_view::npos ? std::string_view{} : dotted.substr(0, dot);
}
std::string_view last_of(std::string_view dotted) {
  const auto dot = dotted.rfind('.');
  return dot == std::string_view::npos ? dotted : dotted.substr(dot + 1);
}

// As keys are written: learning-rate is learning_rate.
std::string lower(std::string_view key) {
  std::string low;
  for (char c : key) low += c == '-' ? '_' : static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return low;
}

// The keys of this last name in the outermost sections that have one.
std::vector<std::string> namesakes(const std::vector<std::string>& keys, std::string_view name) {
  std::vector<std::string> found;
  const auto depth = [](const std::string& key) { return std::count(key.begin(), key.end(), '.'); };
  for (const std::string& k : keys) {
    if (last_of(k) != name || (!found.empty() && depth(k) > depth(found[0]))) continue;
    if (!found.empty() && depth(k) < depth(found[0])) found.clear();
    found.push_back(k);
  }
  return found;
}

}  // namespace

std::string meant_key(std::string_view word, std::string_view section,
                      const std::vector<std::string>& keys, const FieldReader::Hints& hints) {
  const std::string path = section.empty() ? "" : std::string(section) + ".", low = lower(word);
  std::vector<std::string_view> here;
  for (const std::string& k : keys)
    if (parent_of(k) == section) here.push_back(last_of(k));
  const auto through_alias = [&](std::string_view typed) -> std::string {
    const auto alias = hints.keys.find(typed);
    if (alias == hints.keys.end()) return {};
    for (std::string_view target : alias->second)
      if (std::find(here.begin(), here.end(), last_of(target)) != here.end())
        return path + std::string(last_of(target));
    return std::string(alias->second.front());
  };
  if (std::string meant = through_alias(low); !meant.empty()) return meant;
  if (const auto near = nearest(word, here, 1); !near.empty()) return path + std::string(near);
  if (const auto same = namesakes(keys, low); same.size() == 1) return same[0];
  if (const auto near = nearest(word, here, 2); !near.empty()) return path + std::string(near);
  std::vector<std::string_view> words;
  for (const auto& [typed, targets] : hints.keys)
    if (typed.size() > 5) words.push_back(typed);
  return through_alias(nearest(word, words, 2));
}

FieldReader::FieldReader(const YamlNode& root, Diagnostics& out,
                         const std::vector<std::string>& keys, const Hints& hints, bool complete)
    : root_(root), out_(out), keys_(keys), hints_(hints), complete_(complete) {}

void FieldReader::read(const Body& fields) {
  levels_.push_back({&root_, "", "", {}});
  fields(*this);
  report_unknown();
  levels_.pop_back();
}

void FieldReader::error(const Field& f, const YamlNode& node, const std::string& problem,
                        const std::string& help) {
  failed_.insert(dotted(f.name));
  if (node.kind != Kind::broken) out_.error(node.at, quoted(dotted(f.name)) + ": " + problem, help);
}

bool FieldReader::failed(std::string dotted) const {
  for (; !dotted.empty(); dotted = std::string(parent_of(dotted)))
    if (failed_.contains(dotted)) return true;
  return false;
}

Mark FieldReader::where(std::string dotted) const {
  for (; !dotted.empty(); dotted = std::string(parent_of(dotted)))
    if (const auto found = marks_.find(dotted); found != marks_.end()) return found->second;
  return root_.at;
}

// The value of a key of this section; records its position.
const YamlNode* FieldReader::enter(std::string_view name) {
  Level& level = levels_.back();
  level.known.insert(name);
  const YamlNode* node = level.node ? level.node->find(name) : nullptr;
  if (node) marks_[dotted(name)] = node->at;
  return node;
}

Mark FieldReader::section_mark() const {
  const Level& level = levels_.back();
  return level.node ? level.node->at : where(level.path.substr(0, level.path.size() - 1));
}

void FieldReader::report_missing(const Field& f) {
  if (failed(dotted(f.name))) return;
  failed_.insert(dotted(f.name));
  out_.error(section_mark(), quoted(dotted(f.name)) + " is missing; expected " + expected_value(f) +
                                 ": " + std::string(f.help));
}

template <class T>
bool FieldReader::in_range(const Field& f, const YamlNode& node, T x) {
  const std::string problem = range_problem(f, x);
  if (!problem.empty()) error(f, node, problem);
  return problem.empty();
}

bool FieldReader::read_value(const Field& f, const YamlNode& node, std::uint64_t& x) {
  std::string problem;
  const auto whole = read_whole(node, f.kind != FieldKind::integer, problem);
  if (whole && whole->negative && whole->magnitude)
    problem =
        "-" + std::to_string(whole->magnitude) + " is out of range; expected " + expected_value(f);
  if (!problem.empty()) return error(f, node, problem), false;
  if (!in_range(f, node, whole->magnitude)) return false;
  x = whole->magnitude;
  return true;
}

bool FieldReader::read_value(const Field& f, const YamlNode& node, std::int64_t& x) {
  if (!f.automatic.empty() && node.kind == Kind::scalar && node.text == f.automatic)
    return x = 0, true;
  std::string problem;
  const auto whole = read_whole(node, f.kind != FieldKind::integer, problem);
  if (whole &&
      whole->magnitude > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    problem = quoted(node.text) + " is too large; expected " + expected_value(f);
  if (!problem.empty()) {
    if (!f.automatic.empty()) problem += ", or " + std::string(f.automatic);
    return error(f, node, problem), false;
  }
  const auto magnitude = static_cast<std::int64_t>(whole->magnitude);
  const std::int64_t value = whole->negative ? -magnitude : magnitude;
  if (!in_range(f, node, value)) return false;
  x = value;
  return true;
}

bool FieldReader::read_value(const Field& f, const YamlNode& node, double& x) {
  if (!f.automatic.empty() && node.kind == Kind::scalar && node.text == f.automatic)
    return x = 0, true;
  std::string problem;
  const auto value = read_real(node, problem);
  if (!value) return error(f, node, problem), false;
  if (!in_range(f, node, *value)) return false;
  x = *value;
  return true;
}

bool FieldReader::read_value(const Field& f, const YamlNode& node, bool& x) {
  std::string problem;
  const auto value = read_boolean(node, problem);
  if (!value) return error(f, node, problem), false;
  x = *value;
  return true;
}

bool FieldReader::read_value(const Field& f, const YamlNode& node, std::string& x) {
  const std::string expected = "; expected " + expected_value(f);
  if (node.kind == Kind::null && f.automatic == "none") return x.clear(), true;
  if (node.kind != Kind::scalar) return error(f, node, "found " + describe(node) + expected), false;
  if (!f.automatic.empty() && (node.text.empty() || node.text == f.automatic))
    return x.clear(), true;
  x = node.text;
  if (f.kind == FieldKind::choice) {
    if (const auto value = boolean_of(node)) x = *value ? "true" : "false";
    if (std::find(f.choices.begin(), f.choices.end(), x) == f.choices.end()) {
      return error(f, node, "found " + describe(node) + expected, help_for_value(f, x)), false;
    }
  } else if (is_number(node) || is_boolean(node)) {
    return error(f, node, "found " + describe(node) + expected,
                 "put it in quotes if you mean text"),
           false;
  } else if (node.text.empty()) {
    return error(f, node, "found an empty string" + expected), false;
  }
  return true;
}

template <class T>
void FieldReader::read_member(const Field& f, T& x) {
  const YamlNode* node = enter(f.name);
  if (node) {
    read_value(f, *node, x);
  } else if (f.required && is_unset(x)) {
    report_missing(f);
  }
}

void FieldReader::special(const Field& f, const SpecialField& s) {
  const YamlNode* node = enter(f.name);
  if (!node) {
    if (s.missing && s.missing()) report_missing(f);
  } else if (node->kind == Kind::null) {
    error(f, *node, "found no value; expected " + std::string(s.type));
  } else if (node->kind == Kind::map && s.keys) {
    read_section(*node, std::string(f.name), s.keys);
  } else if (node->kind != Kind::broken) {
    s.read(*this, *node);
  }
}

void FieldReader::section(const Field& f, const Body& body, bool) {
  const YamlNode* node = enter(f.name);
  if (!node) {
    if (!f.required || complete_) return;
    failed_.insert(dotted(f.name));
    out_.error(section_mark(),
               "the section '" + dotted(f.name) + "' is missing; expected " + std::string(f.help));
  } else if (node->kind == Kind::map || node->kind == Kind::null) {
    read_section(*node, std::string(f.name), body);
  } else {
    error(
        f, *node, "found " + describe(*node) + "; expected a section with keys such as " + [&] {
          std::vector<std::string_view> some;
          for (const auto& k : keys_)
            if (parent_of(k) == known_as(f.name) && some.size() < 3) some.push_back(last_of(k));
          return join(some);
        }());
  }
}

void FieldReader::read_section(const YamlNode& node, const std::string& name, const Body& body) {
  levels_.push_back(
      {node.kind == Kind::map ? &node : nullptr, dotted(name) + ".", known_as(name) + ".", {}});
  read_level(body);
}

void FieldReader::read_names(const Field& f, const YamlNode& map,
                             const std::function<Body(const std::string&)>& fields) {
  const std::string path = dotted(f.name) + ".", known_as = levels_.back().known_as;
  for (std::size_t i = 0; i < map.keys.size(); ++i) {
    const std::string& name = map.keys[i].text;
    const YamlNode& section = map.items[i];
    marks_[path + name] = section.at;
    if (section.kind != Kind::map && section.kind != Kind::null) {
      failed_.insert(path + name);
      out_.error(section.at, quoted(path + name) + ": found " + describe(section) +
                                 "; expected keys of '" + known_as.substr(0, known_as.size() - 1) +
                                 "', or {}");
      continue;
    }
    levels_.push_back(
        {section.kind == Kind::map ? &section : nullptr, path + name + ".", known_as, {}});
    read_level(fields(name));
  }
}

void FieldReader::read_level(const Body& body) {
  // Misspelled keys come first: what they stand for is then not reported as missing.
  Level& level = levels_.back();
  for (std::size_t i = 0; level.node && i < level.node->keys.size(); ++i)
    if (const std::string meant = suggestion(level.node->keys[i], level.node->items[i]);
        meant.starts_with(level.known_as))
      failed_.insert(level.path + meant.substr(level.known_as.size()));
  body(*this);
  report_unknown();
  levels_.pop_back();
}

// The feature that an unknown key of this section belongs to, if that does not exist; else empty.
std::string_view FieldReader::missing_feature(const YamlNode& key, const YamlNode& value) const {
  const std::string low = lower(key.text);
  if (value.kind == Kind::scalar && hints_.keys.contains(low)) return {};
  for (const std::string& name : {low, known_as(low)})
    if (const auto found = hints_.missing.find(name); found != hints_.missing.end())
      return found->second;
  return {};
}

// The dotted key that an unknown key probably means; empty: no suggestion.
std::string FieldReader::suggestion(const YamlNode& key, const YamlNode& value) {
  const std::string path = levels_.back().known_as, section(parent_of(path + "x"));
  const bool known = std::find(keys_.begin(), keys_.end(), path + key.text) != keys_.end();
  if (out_.full() || known || !missing_feature(key, value).empty()) return {};
  return meant_key(key.text, section, keys_, hints_);
}

std::string FieldReader::help_for_value(const Field& f, const std::string& text) const {
  const std::string typed = known_as(f.name) + "=" + lower(text);
  if (const auto none = hints_.missing.find(typed); none != hints_.missing.end())
    return std::string(none->second) + " is not supported yet";
  std::string_view meant = nearest(text, f.choices);
  std::vector<std::string_view> longer;
  for (std::string_view choice : f.choices)
    if (!text.empty() && choice.starts_with(lower(text))) longer.push_back(choice);
  if (meant.empty() && longer.size() == 1) meant = longer[0];
  if (const auto known = hints_.values.find(typed); known != hints_.values.end())
    meant = known->second;
  return meant.empty() ? "" : "did you mean '" + std::string(meant) + "'?";
}

void FieldReader::report_unknown() {
  const Level& level = levels_.back();
  if (!level.node) return;
  const std::string section = level.path.empty() ? "" : level.path.substr(0, level.path.size() - 1);
  for (std::size_t i = 0; i < level.node->keys.size(); ++i) {
    const YamlNode& key = level.node->keys[i];
    if (level.known.contains(key.text)) continue;
    const YamlNode& value = level.node->items[i];
    const std::string meant = suggestion(key, value);
    std::vector<std::string_view> known(level.known.begin(), level.known.end());
    std::string help =
        "did you mean '" +
        (meant.starts_with(level.known_as) ? meant.substr(level.known_as.size()) : meant) + "'?";
    if (meant.empty()) help.clear();
    if (const std::string_view feature = missing_feature(key, value); !feature.empty())
      help = std::string(feature) + " is not supported yet";
    const std::string place = section.empty() ? " at the top level" : " in '" + section + "'";
    out_.error(
        key.at,
        "unknown key '" + shorten(key.text) + "'" + place + "; expected one of " + join(known),
        help);
    if (!meant.empty()) failed_.insert(meant);
  }
}

template void FieldReader::read_member(const Field&, std::int64_t&);
template void FieldReader::read_member(const Field&, std::uint64_t&);
template void FieldReader::read_member(const Field&, double&);
template void FieldReader::read_member(const Field&, bool&);
template void FieldReader::read_member(const Field&, std::string&);

}  // namespace tfm::config
