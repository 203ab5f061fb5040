#include "huggingface/config.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "config/fields.h"
#include "core/strings.h"
#include "io/file.h"

namespace tfm::huggingface {
namespace {

// A second name of a member, which counts for transformers where both are there.
struct Alias {
  const char *model_type, *alias, *member;
};
constexpr Alias kAliases[] = {{"gpt2", "hidden_size", "n_embd"},
                              {"gpt2", "num_attention_heads", "n_head"},
                              {"gpt2", "num_hidden_layers", "n_layer"},
                              {"gpt2", "max_position_embeddings", "n_positions"},
                              {"t5", "hidden_size", "d_model"},
                              {"t5", "num_attention_heads", "num_heads"},
                              {"t5", "num_hidden_layers", "num_layers"},
                              {"t5", "head_dim", "d_kv"},
                              {"distilbert", "hidden_size", "dim"},
                              {"distilbert", "num_attention_heads", "n_heads"},
                              {"distilbert", "num_hidden_layers", "n_layers"},
                              {"bart", "hidden_size", "d_model"},
                              {"bart", "num_attention_heads", "encoder_attention_heads"},
                              {"bart", "num_hidden_layers", "encoder_layers"},
                              {"marian", "hidden_size", "d_model"},
                              {"marian", "num_attention_heads", "encoder_attention_heads"},
                              {"marian", "num_hidden_layers", "encoder_layers"}};

std::vector<Alias> aliases_in(const Json& config) {
  std::vector<Alias> found;
  for (const Alias& a : kAliases)
    if (config.is_object() && config.value("model_type", Json()) == a.model_type &&
        config.contains(a.alias))
      found.push_back(a);
  return found;
}

void write_model(Json& j, const Architecture& architecture, const config::ModelConfig& m) {
  j["vocab_size"] = m.vocab_size;
  j["tie_word_embeddings"] = m.tied_head();
  const auto pad = j.find("pad_token_id");
  const bool from_the_end = pad != j.end() && pad->is_number_integer() &&
                            pad->get<std::int64_t>() + m.vocab_size == m.padding_idx;
  if (m.padding_idx >= 0 && !from_the_end) j["pad_token_id"] = m.padding_idx;
  if (m.decoder_start >= 0) j["decoder_start_token_id"] = m.decoder_start;
  architecture.write(j, m);
  if (!m.labelled_heads().empty()) write_label_heads(j, m, *architecture.labels);
}

// Changes the number of one key.
class Change : public config::KeyVisitor {
 public:
  explicit Change(std::string key) : key_(std::move(key)) {}
  using FieldVisitor::value;
  void value(const config::Field& f, std::int64_t& x) override { x += is_key(f); }
  void value(const config::Field& f, std::uint64_t& x) override { x += is_key(f); }
  void value(const config::Field& f, double& x) override { x += is_key(f); }
  void value(const config::Field&, bool&) override {}
  void value(const config::Field&, std::string&) override {}

 private:
  bool is_key(const config::Field& f) const { return key_of(f) == key_; }
  std::string key_;
};

// The member of config.json that corresponds to model.`key`: one that changes with its value, if
// possible of those in `given`. Empty: none does.
std::string member_of(const io::JsonNode& given, const Architecture& architecture,
                      config::ModelConfig model, const std::string& key) {
  Json before, after;
  write_model(before, architecture, model);
  Change change(key);
  config::describe(model, change);
  write_model(after, architecture, model);
  std::string found;
  for (const auto& [name, value] : after.items())
    if (!before.contains(name) || before[name] != value) {
      if (given.find(name)) return name;
      if (found.empty()) found = name;
    }
  return found;
}

// Error(input) that names the member of config.json.
void check(const io::JsonNode& c, const Architecture& architecture, const config::ModelConfig& m) {
  config::check_model(
      m, [&](const std::vector<std::string>& keys, const std::string& problem, const auto&) {
        for (const std::string& key : keys)
          if (const auto name = member_of(c, architecture, m, key.substr(key.find('.') + 1));
              !name.empty())
            c.fail(name + " (" + key + "): " + problem);
        c.fail(keys.front() + ": " + problem);
      });
}

}  // namespace

Json read_config(const std::string& dir) {
  const std::string file = dir + "/config.json";
  Json config = io::read_json_file(file, 16 << 20);
  for (const Alias& a : aliases_in(config)) {
    const Json& given = config[a.alias];
    if (!config.contains(a.member)) config[a.member] = given;
    if (config[a.member] != given)
      io::JsonNode(config, file)
          .fail(std::string(a.alias) + " is " + shorten(given.dump()) + " and " + a.member +
                " is " + shorten(config[a.member].dump()) +
                ", which are two names for the same; expected equal values");
  }
  return config;
}

GenerationRules generation_rules(const Json& config, const std::string& dir) {
  const std::string file = dir + "/generation_config.json", other = dir + "/config.json";
  std::error_code ignored;
  const bool own = std::filesystem::is_regular_file(file, ignored);
  const Json generation = own ? io::read_json_file(file, 16 << 20) : config;
  const io::JsonNode given(generation, own ? file : other);
  const auto items = [](const io::JsonNode& node) {
    return node.is_array() ? node.items() : std::vector{node};
  };
  const auto id_of = [](const io::JsonNode& node) {
    return static_cast<std::int32_t>(node.integer(INT32_MIN, INT32_MAX));
  };
  GenerationRules rules;
  auto ends = given.find("eos_token_id");
  if (!ends) ends = io::JsonNode(config, other).find("eos_token_id");
  if (ends)
    for (const io::JsonNode& id : items(*ends)) rules.end_ids.push_back(id_of(id));
  if (const auto start = io::JsonNode(config, other).find("decoder_start_token_id"))
    rules.model_start = id_of(*start);
  if (own)  // without a start, transformers takes bos_token_id of this file
    for (const char* key : {"bos_token_id", "decoder_start_token_id"})
      if (const auto start = generation.find(key);
          start != generation.end() && start->is_number_integer())
        rules.start_id = id_of(io::JsonNode(*start, file));
  bool phrases = false;
  if (const auto words = given.find("bad_words_ids"))
    for (const io::JsonNode& word : items(*words)) {
      const std::vector<io::JsonNode> ids = items(word);
      phrases |= ids.size() != 1;
      if (ids.size() == 1 && std::ranges::count(rules.end_ids, id_of(ids[0])) == 0)
        rules.banned_ids.push_back(id_of(ids[0]));
    }
  if (phrases) rules.others.emplace_back("bad_words_ids");
  for (const auto& [key, neutral] : {std::pair<const char*, double>{"num_beams", 1},
                                     {"length_penalty", 1},
                                     {"repetition_penalty", 1},
                                     {"encoder_repetition_penalty", 1},
                                     {"num_beam_groups", 1},
                                     {"diversity_penalty", 0},
                                     {"exponential_decay_length_penalty", -1},
                                     {"no_repeat_ngram_size", 0},
                                     {"encoder_no_repeat_ngram_size", 0},
                                     {"min_length", 0},
                                     {"min_new_tokens", 0},
                                     {"forced_bos_token_id", -1},
                                     {"forced_decoder_ids", -1},
                                     {"suppress_tokens", -1},
                                     {"begin_suppress_tokens", -1},
                                     {"sequence_bias", -1},
                                     {"guidance_scale", 1},
                                     {"watermarking_config", -1}}) {
    const auto value = generation.find(key);
    if (value != generation.end() && !value->is_null() && *value != neutral &&
        *value != Json::array())
      rules.others.emplace_back(key);
  }
  return rules;
}

namespace {

// Whether an encoder is of a class without head, such as BertModel, and has no tensor of one.
bool is_headless(const io::JsonNode& c, const Architecture& architecture,
                 const config::ModelConfig& m, const Has& has) {
  const auto classes = c.find("architectures");
  if (m.family != config::Family::encoder || !m.head_of_type("lm") || !classes ||
      classes->items().empty() || !classes->items()[0].string().ends_with("Model"))
    return false;
  return std::ranges::none_of(architecture.exchanged(m), [&](const ExchangedTensor& t) {
    return t.parts.front().starts_with("head.") && has(t.name);
  });
}

}  // namespace

config::ModelConfig model_of(const io::JsonNode& c, const Has& has) {
  const Architecture& architecture = architecture_of(c);
  config::ModelConfig m = architecture.read(c);
  architecture.read_heads(m, c, has);
  if (architecture.labels) read_label_heads(m, c, *architecture.labels, has);
  if (is_headless(c, architecture, m, has)) m.heads = {{.type = "embed", .labels = {}}};
  if (const auto quantized = c.find("quantization_config"))
    if (!architecture.mxfp4 || quantized->text("quant_method", "") != "mxfp4")
      quantized->fail("quantized weights are not supported; expected weights in F32, F16 or BF16" +
                      std::string(architecture.mxfp4 ? ", or quant_method 'mxfp4'" : ""));
  if (const auto causal = c.find("is_causal"))  // any value changes one of two stacks
    if (m.translates() || causal->boolean() != m.decodes())
      causal->fail(std::string(causal->boolean() ? "true" : "false") +
                   " is not supported; expected " +
                   (m.translates() ? "null"
                    : m.decodes()  ? "true"
                                   : "false"));
  if (m.translates()) m.decoder_start = whole(c, "decoder_start_token_id", m.decoder_start);
  config::fill_derived(m, m.max_seq_len);
  check(c, architecture, m);
  return m;
}

std::string model_type(const std::string& config) {
  if (config.empty()) return {};
  const Json tree = Json::parse(config);
  const auto type = tree.find("model_type");
  return type != tree.end() && type->is_string() ? type->get<std::string>() : "";
}

std::string huggingface_config(const config::ModelConfig& m,
                               const std::optional<tokenizer::SpecialIds>& ids,
                               const std::string& original) {
  const Architecture& architecture = architecture_for(m, model_type(original));
  Json j = original.empty() ? Json::object() : io::parse_json(original, "the original config.json");
  if (!j.contains("architectures") || !m.labelled_heads().empty() || m.embeds())
    j["architectures"] = {architecture.class_of(m)};
  j["model_type"] = architecture.name;
  if (!j.contains("dtype")) j["dtype"] = j.value("torch_dtype", Json("float32"));
  if (!j.contains("torch_dtype")) j["torch_dtype"] = j["dtype"];
  j.erase("transformers_weights");  // the file of the weights, which is chosen anew
  if (!j.contains("transformers_version")) j["transformers_version"] = "4.40.0";
  if (ids && original.empty())
    for (const auto& [key, id] : {std::pair{"bos_token_id", ids->begin},
                                  {"eos_token_id", ids->end},
                                  {"pad_token_id", ids->pad}})
      j[key] = id && *id < m.vocab_size ? Json(*id) : Json();
  write_model(j, architecture, m);
  for (const Alias& a : aliases_in(j)) j[a.alias] = j[a.member];
  return j.dump(2) + "\n";
}

void update_generation_config(const std::string& dir, const config::ModelConfig& m,
                              const std::string& original) {
  const std::string file = dir + "/generation_config.json";
  std::vector<const char*> changed;
  if (original.empty()) {
    changed = {"bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"};
  } else {
    const Json config = io::parse_json(original, "the original config.json");
    const io::JsonNode c(config, "the original config.json");
    const config::ModelConfig before = architecture_of(c).read(c);
    if (before.padding_idx != m.padding_idx) changed = {"pad_token_id"};
    if (m.translates() &&
        whole(c, "decoder_start_token_id", before.decoder_start) != m.decoder_start)
      changed.push_back("decoder_start_token_id");
  }
  std::error_code ignored;
  if (changed.empty() || !std::filesystem::is_regular_file(file, ignored)) return;
  const Json written = io::read_json_file(dir + "/config.json", 16 << 20);
  if (std::ranges::none_of(changed, [&](const char* key) { return written.contains(key); }))
    return;  // they are not known
  Json j = io::read_json_file(file, 16 << 20);
  io::JsonNode(j, file).members();
  const Json before = j;
  for (const char* key : changed) {
    const Json id = written.value(key, Json()), now = j.value(key, Json());
    if (now.is_array() && std::ranges::count(now, id) > 0) continue;  // one of several
    id.is_null() ? void(j.erase(key)) : void(j[key] = id);
  }
  if (j != before) io::replace_file(file, j.dump(2) + "\n");
}

}  // namespace tfm::huggingface
