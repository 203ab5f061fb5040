#pragma once
// The visitor that reads a section of YAML into the settings that describe it.
#include "config/reflect.h"

namespace tfm::config {

// Sets the values that a tree holds and reports everything else in it.
class FieldReader : public FieldVisitor {
 public:
  // What users of other tools type, in lower case, and what it is here.
  struct Hints {
    std::map<std::string_view, std::vector<std::string_view>> keys;  // dotted, the likeliest first
    std::map<std::string, std::string_view> values;                  // of "precision=float16"
    // Features that do not exist, by key, by dotted key, or by "precision=fp8". A word that `keys`
    // has, too, means the feature where its value is a list or a map.
    std::map<std::string_view, std::string_view> missing;
  };

  // `keys`: every dotted key that exists. `complete`: all sections are set already, and the tree
  // changes some of their values.
  FieldReader(const YamlNode& root, Diagnostics& out, const std::vector<std::string>& keys,
              const Hints& hints, bool complete);
  void read(const Body& fields);  // the root section

  using FieldVisitor::value;

  void value(const Field& f, std::int64_t& x) override { read_member(f, x); }
  void value(const Field& f, std::uint64_t& x) override { read_member(f, x); }
  void value(const Field& f, double& x) override { read_member(f, x); }
  void value(const Field& f, bool& x) override { read_member(f, x); }
  void value(const Field& f, std::string& x) override { read_member(f, x); }
  void special(const Field&, const SpecialField&) override;
  void section(const Field&, const Body&, bool absent = false) override;

  // For special fields: reads one value. False, with the problem reported, if the node does not
  // hold one.
  bool read_value(const Field&, const YamlNode&, std::int64_t&);
  bool read_value(const Field&, const YamlNode&, std::uint64_t&);
  bool read_value(const Field&, const YamlNode&, double&);
  bool read_value(const Field&, const YamlNode&, bool&);
  bool read_value(const Field&, const YamlNode&, std::string&);
  void read_section(const YamlNode& map, const std::string& name, const Body& fields);
  // A map from names to sections, whose keys are those of the section around `f`.
  void read_names(const Field& f, const YamlNode& map,
                  const std::function<Body(const std::string& name)>& fields);
  void error(const Field&, const YamlNode&, const std::string& problem,
             const std::string& help = {});

  bool failed(std::string dotted) const;  // whether the key, or a section around it, was reported
  // The places of the values by dotted key, "data.train.path[1]" for items of a list.
  const std::map<std::string, Mark>& marks() const { return marks_; }
  void mark_item(const Field& f, std::size_t item, Mark at) {
    marks_[dotted(f.name) + "[" + std::to_string(item) + "]"] = at;
  }

 private:
  struct Level {
    const YamlNode* node;
    std::string path;      // "model.", empty at the root
    std::string known_as;  // the path by which `keys` has its keys
    std::set<std::string_view> known;
  };
  template <class T>
  void read_member(const Field& f, T& x);
  template <class T>
  bool in_range(const Field& f, const YamlNode& node, T x);
  const YamlNode* enter(std::string_view name);
  void read_level(const Body& body);
  std::string dotted(std::string_view name) const {
    return levels_.back().path + std::string(name);
  }
  std::string known_as(std::string_view name) const {
    return levels_.back().known_as + std::string(name);
  }
  // The place of a key, or of the innermost section around it that is there.
  Mark where(std::string dotted) const;
  Mark section_mark() const;
  void report_missing(const Field& f);
  void report_unknown();
  std::string_view missing_feature(const YamlNode& key, const YamlNode& value) const;
  std::string suggestion(const YamlNode& key, const YamlNode& value);
  std::string help_for_value(const Field& f, const std::string& text) const;

  const YamlNode& root_;
  Diagnostics& out_;
  const std::vector<std::string>& keys_;
  const Hints& hints_;
  const bool complete_;
  std::vector<Level> levels_;
  std::map<std::string, Mark> marks_;
  std::set<std::string> failed_;
};

// The dotted key that `word`, which is none of `section`, probably means; empty: no suggestion.
std::string meant_key(std::string_view word, std::string_view section,
                      const std::vector<std::string>& keys, const FieldReader::Hints& hints);

}  // namespace tfm::config
