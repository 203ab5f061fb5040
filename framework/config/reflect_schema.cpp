// The visitor that writes a JSON schema, for editors, shell completion and man pages.
#include "config/reflect.h"

namespace tfm::config {
namespace {

std::string json_string(std::string_view text) {
  std::string s = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') s += '\\';
    s += c;
  }
  return s + '"';
}

class SchemaWriter : public FieldVisitor {
 public:
  using FieldVisitor::value;
  void value(const Field& f, std::int64_t& x) override { number(f, x == 0, std::to_string(x)); }
  void value(const Field& f, std::uint64_t& x) override { number(f, false, std::to_string(x)); }
  void value(const Field& f, double& x) override { number(f, x == 0, number_text(x)); }
  void value(const Field& f, bool& x) override { leaf(f, x ? "true" : "false"); }
  void value(const Field& f, std::string& x) override {
    const std::string_view w = x.empty() ? f.automatic : std::string_view(x);
    leaf(f, is_boolean(f, w) ? std::string(w) : json_string(w));
  }
  void special(const Field& f, const SpecialField& s) override {
    if (s.named)
      return put(f, "{" + description(f) +
                        any_of(R"({"type": "object", "additionalProperties": )" +
                               object(s.item, s.item_keys, indent_, kSection) + "}") +
                        "}");
    std::string forms = one_of(s.item);
    if (s.item_keys) {
      std::string needs;
      for (const std::string& keys : s.item_needs)
        needs +=
            (needs.empty() ? "" : ", ") + (R"({"type": "object", "required": [)" + keys + "]}");
      std::string map = object(s.item, s.item_keys, indent_, kMap);
      if (!needs.empty()) map.insert(1, "\"anyOf\": [" + needs + "], ");
      forms += ", " + map;
    }
    const std::string item = R"({"anyOf": [)" + forms + "]}";
    if (s.item_keys) forms = item;  // nested, as its keys are none of the configuration's
    if (!s.single)
      forms = f.automatic.empty() ? "" : "{\"enum\": [" + json_string(f.automatic) + "]}";
    const auto add = [&forms](const std::string& form) {
      forms += (forms.empty() ? "" : ", ") + form;
    };
    if (s.most > 0)
      add(R"({"type": "array", "items": )" + item +
          (s.least > 0 ? ", \"minItems\": " + std::to_string(s.least) : "") +
          (s.most < kAnyNumber ? ", \"maxItems\": " + std::to_string(s.most) : "") + "}");
    if (s.keys) add(object(f, s.keys, indent_, kMap));
    put(f, "{" + description(f) + any_of(forms) + "}");
  }
  void section(const Field& f, const Body& body, bool) override {
    put(f, object(f, body, indent_, kSection));
    if (f.required) required_.emplace_back(f.name);
  }
  std::string document(const std::string& title, const Body& fields) {
    const Field root{.name = "", .help = title};
    std::string s = object(root, fields, "", kSection);
    return R"({
  "$schema": "http://json-schema.org/draft-07/schema#",
  "definitions": {"count": {"type": "string", "pattern": "^[+-]?((0|[1-9][0-9]*)([.][0-9]*)?)"
           R"(|[.][0-9]+)([eE][+-]?[0-9]+)?(k|M|G|Ki|Mi|Gi)$"}},)" +
           s.substr(1) + "\n";
  }

 private:
  // Types of an object; only a section may be empty.
  static constexpr std::string_view kSection = R"(["object", "null"])", kMap = R"("object")";

  // A word that YAML reads as a boolean unless it is in quotes.
  static bool is_boolean(const Field& f, std::string_view w) {
    return f.kind == FieldKind::choice && (w == "true" || w == "false");
  }
  static std::string description(const Field& f) {
    return "\"description\": " + json_string(f.help);
  }
  static std::string any_of(const std::string& forms) { return ", \"anyOf\": [" + forms + "]"; }
  // What a single value may be, as items of anyOf.
  static std::string one_of(const Field& f) {
    std::string s;
    const auto add = [&s](const std::string& form) { s += (s.empty() ? "" : ", ") + form; };
    const auto bound = [&](const char* name, double x) {
      return std::string(", \"") + name + "\": " + number_text(x);
    };
    std::string range;
    if (f.low > -std::numeric_limits<double>::infinity())
      range += bound(f.low_open ? "exclusiveMinimum" : "minimum", f.low);
    if (f.high < std::numeric_limits<double>::infinity())
      range += bound(f.high_open ? "exclusiveMaximum" : "maximum", f.high);
    switch (f.kind) {
      case FieldKind::count:
      case FieldKind::size:
        add(R"({"$ref": "#/definitions/count"})");
        [[fallthrough]];
      case FieldKind::integer:
        add("{\"type\": \"integer\"" + range + "}");
        break;
      case FieldKind::real:
        add("{\"type\": \"number\"" + range + "}");
        break;
      case FieldKind::boolean:
        add(R"({"type": "boolean"})");
        break;
      case FieldKind::text:
        add(R"({"type": "string"})");
        break;
      case FieldKind::choice:
        break;
    }
    std::string words;
    const auto list = [&](std::string_view w) {
      words += (words.empty() ? "" : ", ") + json_string(w);
      if (is_boolean(f, w)) words += ", " + std::string(w);
    };
    for (const std::string_view w : f.choices) list(w);
    if (!f.automatic.empty() && f.kind != FieldKind::text) list(f.automatic);
    if (!words.empty()) add("{\"enum\": [" + words + "]}");
    return s;
  }
  void number(const Field& f, bool unset, const std::string& text) {
    leaf(f, unset && !f.automatic.empty() ? json_string(f.automatic) : text);
  }
  void leaf(const Field& f, const std::string& standard) {
    const bool fixed = !f.required && f.fallback.empty();
    put(f, "{" + description(f) + any_of(one_of(f)) + (fixed ? ", \"default\": " + standard : "") +
               "}");
    if (f.required) required_.emplace_back(f.name);
  }
  void put(const Field& f, const std::string& schema) {
    properties_ +=
        (properties_.empty() ? "\n" : ",\n") + indent_ + json_string(f.name) + ": " + schema;
  }
  // An object, written at indentation `indent`.
  std::string object(const Field& f, const Body& body, const std::string& indent,
                     std::string_view type) {
    std::string properties, inner = indent + "    ";
    std::vector<std::string> required;
    const auto swap = [&] {
      std::swap(properties, properties_), std::swap(required, required_), std::swap(inner, indent_);
    };
    swap();
    body(*this);
    swap();
    const std::string line = "\n" + indent + "  ";
    std::string s = "{" + line + description(f) + "," + line + "\"type\": " + std::string(type) +
                    "," + line + R"("additionalProperties": false,)" + line + "\"properties\": {" +
                    properties + line + "}";
    if (!required.empty()) {
      std::string keys = "\"required\": [" + names(required) + "]";
      if (!f.instead.empty()) {
        keys = "\"anyOf\": [{" + keys + "}";
        for (const std::string_view key : f.instead)
          keys += ", {\"required\": [" + json_string(key) + "]}";
        keys += "]";
      }
      s += "," + line + keys;
    }
    return s + "\n" + indent + "}";
  }
  static std::string names(const std::vector<std::string>& list) {
    std::string s;
    for (const std::string& name : list) s += (s.empty() ? "" : ", ") + json_string(name);
    return s;
  }

  std::string properties_, indent_;
  std::vector<std::string> required_;  // of the object that is written
};

}  // namespace

std::string field_schema(const std::string& title, const Describe& fields) {
  return SchemaWriter().document(title, fields);
}

}  // namespace tfm::config
