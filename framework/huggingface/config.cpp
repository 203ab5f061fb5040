#include "huggingface/config.h"

#include "config/fields.h"

namespace tfm::huggingface {

Json read_config(const std::string& dir) {
  return io::read_json_file(dir + "/config.json", 16 << 20);
}

config::ModelConfig model_of(const io::JsonNode& c, const Has& has) {
  const Architecture& architecture = architecture_of(c);
  config::Config filled;
  config::ModelConfig& m = filled.model = architecture.read(c);
  architecture.read_heads(m, c, has);
  if (m.translates())
    if (const auto start = c.find("decoder_start_token_id"))
      m.decoder_start = start->integer(0, std::int64_t{1} << 31);
  config::fill_derived(filled);
  if (m.d_model == 0 || m.n_heads == 0 || m.d_head == 0)
    c.fail("sizes of 0, or a width that the number of heads does not divide");
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
  if (!j.contains("architectures")) j["architectures"] = {architecture.class_name(m)};
  j["model_type"] = architecture.name;
  j["vocab_size"] = m.vocab_size;
  j["tie_word_embeddings"] = m.tied_head();
  if (!j.contains("dtype")) j["dtype"] = j.value("torch_dtype", Json("float32"));
  if (!j.contains("torch_dtype")) j["torch_dtype"] = j["dtype"];
  if (!j.contains("transformers_version")) j["transformers_version"] = "4.40.0";
  if (ids && original.empty())
    for (const auto& [key, id] : {std::pair{"bos_token_id", ids->begin},
                                  {"eos_token_id", ids->end},
                                  {"pad_token_id", ids->pad}})
      j[key] = id && *id < m.vocab_size ? Json(*id) : Json();
  const auto pad = j.find("pad_token_id");
  const bool from_the_end = pad != j.end() && pad->is_number_integer() &&
                            pad->get<std::int64_t>() + m.vocab_size == m.padding_idx;
  if (m.padding_idx >= 0 && !from_the_end) j["pad_token_id"] = m.padding_idx;
  if (m.decoder_start >= 0) j["decoder_start_token_id"] = m.decoder_start;
  architecture.write(j, m);
  return j.dump(2) + "\n";
}

}  // namespace tfm::huggingface
