#include "config/config.h"

#include <algorithm>
#include <functional>

#include "config/fields.h"
#include "config/run_name.h"

namespace tfm::config {
namespace {

using Kind = YamlNode::Kind;

FieldVisitor::Body fields_of(Config& config) {
  return [&config](FieldVisitor& visitor) { describe_config(config, visitor); };
}

const std::vector<std::string>& all_keys() {
  static const std::vector<std::string> keys = [] {
    Config scratch;
    return field_keys(fields_of(scratch));
  }();
  return keys;
}

// Expands a number for model.dropout into its section, so that an override can set one of its keys.
void expand_dropout(YamlNode& dropout) {
  const YamlNode number = dropout;
  dropout = {.kind = Kind::map, .at = number.at};
  for (const char* place : {"embedding", "attention", "residual", "ffn"})
    dropout.add({.kind = Kind::scalar, .at = number.at, .text = place}, number);
}

void merge(YamlNode& into, YamlNode value) {
  if (into.kind != Kind::map || value.kind != Kind::map) {
    into = std::move(value);
    return;
  }
  for (std::size_t i = 0; i < value.keys.size(); ++i) {
    if (YamlNode* old = into.find(value.keys[i].text)) {
      merge(*old, std::move(value.items[i]));
    } else {
      into.add(std::move(value.keys[i]), std::move(value.items[i]));
    }
  }
}

// Sets the value at a dotted path of the tree and creates missing sections.
void graft(YamlNode& root, std::string_view path, YamlNode value, Mark at, Diagnostics& out) {
  YamlNode* node = &root;
  std::string done;
  while (true) {
    const auto dot = path.find('.');
    const std::string name(path.substr(0, dot));
    YamlNode* next = node->find(name);
    if (dot == std::string_view::npos) {
      if (next && next->kind == Kind::map && value.kind == Kind::null && value.text.empty())
        return out.error(at, quoted(done.empty() ? name : done + "." + name) +
                                 ": found no value; expected {key: value, ...}");
      if (next) return merge(*next, std::move(value));
      node->add({.kind = Kind::scalar, .at = at, .text = name}, std::move(value));
      return;
    }
    done += (done.empty() ? "" : ".") + name;
    if (!next)
      next =
          &node->add({.kind = Kind::scalar, .at = at, .text = name}, {.kind = Kind::map, .at = at});
    if (next->kind == Kind::null) next->kind = Kind::map;
    if (done == "model.dropout" && next->kind == Kind::scalar) expand_dropout(*next);
    if (next->kind != Kind::map)
      return out.error(at, quoted(done) + " is not a section; expected section.key=value");
    node = next;
    path.remove_prefix(dot + 1);
  }
}

void apply_override(const std::string& argument, YamlNode* root, Diagnostics& out) {
  const int source = out.add_override(argument);
  const Mark at{1, 1, source};
  const auto equals = argument.find('=');
  const std::string path = argument.substr(0, equals);
  if (equals == std::string::npos || path.empty())
    return out.error(at, "expected section.key=value, such as optimizer.lr=3e-4");
  const auto start = path.find_first_not_of("+-~");
  if (start != 0)
    return out.error(at, "keys start with a letter; expected section.key=value",
                     start == std::string::npos
                         ? ""
                         : "write " + path.substr(start) + "=" + argument.substr(equals + 1));
  if (path.front() == '.' || path.back() == '.' || path.find("..") != std::string::npos ||
      std::count(path.begin(), path.end(), '.') > 8)
    return out.error(
        at, "key " + quoted(path) + " has an empty or too many parts; expected section.key=value");
  std::optional<YamlNode> value = parse_yaml_value(out, source);
  if (value && root) graft(*root, path, std::move(*value), at, out);
}

const YamlNode* scalar_of_model(const YamlNode& root, const char* key) {
  const YamlNode* model = root.find("model");
  const YamlNode* word = model && model->kind == Kind::map ? model->find(key) : nullptr;
  return word && word->kind == Kind::scalar ? word : nullptr;
}

// Takes from model.init what it has; false where that fails. True, too, for random weights.
bool read_init(const YamlNode& root, const ReadInitial& read_initial, Config& config,
               Diagnostics& out) {
  const YamlNode* init = scalar_of_model(root, "init");
  if (!init || init->text.empty() || init->text == "random") return true;
  if (!read_initial) {
    out.error(init->at,
              "model.init: " + quoted(init->text) + " is not supported here; expected random");
    return false;
  }
  const auto fail = [&](const std::exception& e, ExitCode code) {
    out.error(init->at, "model.init: " + std::string(e.what()), "", code);
    return false;
  };
  try {
    const InitialConfig initial = read_initial(init->text);
    config.model = initial.model;
    config.data.tokenizer = initial.tokenizer;
    config.data.source_tokenizer = initial.source_tokenizer;
    return true;
  } catch (const Error& e) {
    return fail(e, e.code());
  } catch (const std::exception& e) {
    return fail(e, ExitCode::input);
  }
}

struct Base {
  std::map<std::string, Mark> marks = {};  // of the values that `config` has
  Mark root;
  std::string file = {};  // the name of a run may derive from it
  bool complete = false;  // no required key is missing
  bool check = true;
};

// Sets the values that the tree has, then validates the configuration.
void read_values(Config& config, const YamlNode& tree, Diagnostics& out, Base base) {
  FieldReader reader(tree, out, all_keys(), hints(), base.complete);
  reader.read(fields_of(config));
  fill_derived(config);
  if (config.run.name.empty()) config.run.name = derived_run_name(config, base.file);
  for (const auto& [key, mark] : reader.marks()) base.marks[key] = mark;
  if (base.check)
    check_consistency(config, [&](const auto& keys, const std::string& message, const auto& help) {
      Mark at = base.root;
      for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
        if (reader.failed(*key)) return;
        if (const auto found = base.marks.find(*key); found != base.marks.end()) at = found->second;
      }
      out.error(at, message, help);
    });
  out.throw_if_any();
  config.places = Places(out, std::move(base.marks), base.root);
}

// `read` adds the text of `file` to the diagnostics and says whether it can be parsed.
Config build_config(const std::string& file, const std::function<bool(Diagnostics&, int&)>& read,
                    const std::vector<std::string>& overrides, const ReadInitial& read_initial) {
  Diagnostics out;
  int source = 0;
  std::optional<YamlNode> root;
  if (read(out, source)) root = parse_yaml(out, source);
  for (const std::string& argument : overrides)
    apply_override(argument, root ? &*root : nullptr, out);
  if (!root) out.throw_if_any();

  Config config;
  // The reader reports an unknown preset. A known one takes its place here, and that of an init
  // that cannot be read, so that its sizes are not reported as missing, too.
  const std::vector<std::string> presets = preset_names();
  const YamlNode* node = scalar_of_model(*root, "preset");
  const std::string preset = node ? node->text : "";
  bool known = preset.empty() || preset == "none" ||
               std::find(presets.begin(), presets.end(), preset) != presets.end();
  apply_preset(config.model, known ? preset : presets.front());
  if (!read_init(*root, read_initial, config, out)) {
    known = false;
    apply_preset(config.model, presets.front());
  }
  read_values(config, *root, out, {.root = root->at, .file = file, .check = known});
  return config;
}

}  // namespace

Config load_config(const std::string& path, const std::vector<std::string>& overrides,
                   const ReadInitial& read_initial) {
  return build_config(
      path, [&](Diagnostics& out, int& source) { return read_yaml_file(path, out, source); },
      overrides, read_initial);
}

Config parse_config(const std::string& text, const std::string& name,
                    const std::vector<std::string>& overrides, const ReadInitial& read_initial) {
  return build_config(
      name, [&](Diagnostics& out, int& source) { return source = out.add_file(name, text), true; },
      overrides, read_initial);
}

Config with_overrides(const Config& config, const std::vector<std::string>& overrides,
                      const std::string& name) {
  Config changed = config;
  auto [texts, marks, root] = config.places.written(name);
  YamlNode tree{.kind = Kind::map, .at = root};
  for (const std::string& argument : overrides) apply_override(argument, &tree, texts);
  read_init(tree, {}, changed, texts);
  read_values(changed, tree, texts,
              {.marks = std::move(marks), .root = root, .file = name, .complete = true});
  return changed;
}

std::string meant_key(const std::string& word) {
  const std::vector<std::string>& keys = all_keys();
  if (std::find(keys.begin(), keys.end(), word) != keys.end()) return word;
  const auto dot = word.rfind('.');
  if (dot == std::string::npos) return meant_key(word, "", keys, hints());
  return meant_key(std::string_view(word).substr(dot + 1), word.substr(0, dot), keys, hints());
}

std::string dump_config(const Config& config) {
  Config copy = config;
  return dump_fields(fields_of(copy));
}

std::string config_reference() {
  Config defaults;
  return "| key | type | default | meaning |\n|---|---|---|---|\n" +
         field_reference(fields_of(defaults));
}

std::string config_schema() {
  Config defaults;
  return field_schema("configuration of tfm", fields_of(defaults));
}

}  // namespace tfm::config
