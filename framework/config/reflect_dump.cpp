// Read-only visitors: dump, key list and reference page.

#include "config/reflect.h"

namespace tfm::config {

std::string yaml_of(const Field& f, std::int64_t x) {
  return x == 0 && !f.automatic.empty() ? std::string(f.automatic) : std::to_string(x);
}
std::string yaml_of(const Field&, std::uint64_t x) { return std::to_string(x); }
std::string yaml_of(const Field& f, double x) {
  return x == 0 && !f.automatic.empty() ? std::string(f.automatic) : number_text(x);
}
std::string yaml_of(const Field&, bool x) { return x ? "true" : "false"; }
std::string yaml_of(const Field& f, const std::string& x) {
  return x.empty() && !f.automatic.empty() ? std::string(f.automatic) : quote_yaml(x);
}

namespace {

// Visits every value as (field, its YAML); derived classes handle sections and special forms.
class TextVisitor : public KeyVisitor {
 public:
  void value(const Field& f, std::int64_t& x) override { leaf(f, yaml_of(f, x)); }
  void value(const Field& f, std::uint64_t& x) override { leaf(f, yaml_of(f, x)); }
  void value(const Field& f, double& x) override { leaf(f, yaml_of(f, x)); }
  void value(const Field& f, bool& x) override { leaf(f, yaml_of(f, x)); }
  void value(const Field& f, std::string& x) override { leaf(f, yaml_of(f, x)); }

 protected:
  virtual void leaf(const Field& f, const std::string& yaml) = 0;
};

class Dumper : public TextVisitor {
 public:
  void special(const Field& f, const SpecialField& s) override { leaf(f, s.flow()); }
  void section(const Field& f, const Body& body, bool absent) override {
    if (absent) return;
    text += indent_ + std::string(f.name) + ":\n";
    indent_ += "  ";
    body(*this);
    indent_.resize(indent_.size() - 2);
  }
  std::string text;

 protected:
  void leaf(const Field& f, const std::string& yaml) override {
    text += indent_ + std::string(f.name) + ": " + yaml + "\n";
  }

 private:
  std::string indent_;
};

class KeyList : public TextVisitor {
 public:
  void special(const Field& f, const SpecialField& s) override {
    leaf(f, {});
    TextVisitor::special(f, s);
  }
  void section(const Field& f, const Body& body, bool) override {
    leaf(f, {});
    inside(f, body);
  }
  std::vector<std::string> keys;

 protected:
  void leaf(const Field& f, const std::string&) override { keys.push_back(key_of(f)); }
};

std::string code(std::string_view text) { return std::string("`").append(text).append("`"); }

std::string type_name(const Field& f) {
  static constexpr std::string_view names[] = {"integer", "count", "size", "number",
                                               "boolean", "",      "text"};
  std::string s(names[static_cast<std::size_t>(f.kind)]);
  for (auto c : f.choices) s += (s.empty() ? "`" : ", `") + std::string(c) + "`";
  return s;
}

class Reference : public TextVisitor {
 public:
  void special(const Field& f, const SpecialField& s) override {
    row(f, std::string(s.type), s.missing ? "" : code(s.flow()));
    TextVisitor::special(f, s);
  }
  void section(const Field& f, const Body& body, bool) override {
    row(f, "section", "");
    inside(f, body);
  }
  std::string text;

 protected:
  void leaf(const Field& f, const std::string& yaml) override { row(f, type_name(f), code(yaml)); }

 private:
  void row(const Field& f, const std::string& type, const std::string& value) {
    std::string shown = f.required || !f.fallback.empty()
                            ? std::string(f.required ? "required" : f.fallback)
                            : value;
    const bool bounded = f.kind != FieldKind::choice && type.find(' ') == std::string::npos;
    const std::string expected = expected_value(f);
    const auto bound = expected.find_first_of("<>");
    std::string legal =
        bounded && bound != std::string::npos ? " (" + expected.substr(bound) + ")" : "";
    text += "| `" + key_of(f) + "` | " + type + legal + " | " + shown + " | " +
            std::string(f.help) + " |\n";
  }
};

}  // namespace

std::string dump_fields(const Describe& fields) {
  Dumper dumper;
  fields(dumper);
  return dumper.text;
}

std::vector<std::string> field_keys(const Describe& fields) {
  KeyList list;
  fields(list);
  return list.keys;
}

std::string field_reference(const Describe& fields) {
  Reference reference;
  fields(reference);
  return reference.text;
}

}  // namespace tfm::config
