#include "huggingface/config.h"

#include <filesystem>
#include <functional>
#include <map>

#include "config/fields.h"
#include "core/error.h"
#include "io/json.h"

namespace tfm::huggingface {
namespace {

using Json = nlohmann::json;
constexpr std::size_t kMostBytes = 16 << 20;
constexpr std::int64_t kMost = std::int64_t{1} << 31, kMostLayers = 10000;

std::int64_t whole(const io::JsonNode& c, const std::string& key,
                   std::optional<std::int64_t> otherwise = {}, std::int64_t most = kMost) {
  const auto found = c.find(key);
  if (!found && otherwise) return *otherwise;
  return (found ? *found : c.at(key)).integer(0, most);
}
std::int64_t layers(const io::JsonNode& c, const std::string& key, std::int64_t otherwise) {
  return whole(c, key, otherwise, kMostLayers);
}
double real(const io::JsonNode& c, const std::string& key, double otherwise) {
  const auto found = c.find(key);
  return found ? found->number() : otherwise;
}
// What the model cannot do unless the member has this value.
void must_be(const io::JsonNode& c, const std::string& key, bool value) {
  if (c.flag(key, value) != value)
    c.at(key).fail(value ? "false is not supported; expected true"
                         : "true is not supported; expected false");
}
void must_say(const io::JsonNode& c, const std::string& key, const std::string& value) {
  if (c.text(key, value) != value)
    c.at(key).fail("'" + c.text(key, value) + "' is not supported; expected '" + value + "'");
}

struct ActivationName {
  const char* theirs;
  config::Activation plain;
  std::optional<config::Activation> gated = {};
};
using enum config::Activation;
constexpr ActivationName kActivations[] = {{"gelu_new", gelu_tanh, geglu},
                                           {"gelu_pytorch_tanh", gelu_tanh, geglu},
                                           {"gelu", gelu},
                                           {"relu", relu},
                                           {"silu", silu, swiglu},
                                           {"swish", silu, swiglu}};

config::Activation activation_of(const io::JsonNode& c, const std::string& key,
                                 const std::string& name, bool gated) {
  for (const auto& a : kActivations)
    if (const auto ours = gated ? a.gated : std::optional(a.plain); ours && name == a.theirs)
      return *ours;
  c.at(key).fail("the activation '" + name + "' is not supported" +
                 (gated ? " in a gated layer" : ""));
}
// The name that `j` has for it already, as several mean the same.
std::string activation_name(const Json& j, const char* key, config::Activation activation) {
  const char* name = nullptr;
  for (const auto& a : kActivations)
    if (activation == a.plain || activation == a.gated)
      if (!name || (j.contains(key) && j[key] == a.theirs)) name = a.theirs;
  TFM_CHECK(name, "activation " + config::word(activation));
  return name;
}

config::ModelConfig read_gpt2(const io::JsonNode& c) {
  for (const char* key :
       {"scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "add_cross_attention"})
    must_be(c, key, false);
  config::ModelConfig m{.family = config::Family::decoder};
  m.vocab_size = whole(c, "vocab_size", 50257);
  m.d_model = whole(c, "n_embd", 768), m.n_layers = layers(c, "n_layer", 12),
  m.n_heads = whole(c, "n_head", 12);
  m.d_ff = whole(c, "n_inner", 4 * m.d_model), m.max_seq_len = whole(c, "n_positions", 1024);
  m.activation =
      activation_of(c, "activation_function", c.text("activation_function", "gelu_new"), false);
  m.scale_attention = c.flag("scale_attn_weights", true);
  m.norm_eps = real(c, "layer_norm_epsilon", 1e-5), m.init_std = real(c, "initializer_range", 0.02);
  m.dropout = {real(c, "embd_pdrop", 0.1), real(c, "attn_pdrop", 0.1), real(c, "resid_pdrop", 0.1),
               0};
  return m;
}

void read_rope(const io::JsonNode& c, config::RopeConfig& rope) {
  const auto parameters = c.find("rope_parameters"),
             scaling = parameters ? parameters : c.find("rope_scaling");
  rope.theta = parameters ? real(*parameters, "rope_theta", real(c, "rope_theta", 10000))
                          : real(c, "rope_theta", 10000);
  if (!scaling) return;
  const std::string type = scaling->text("rope_type", scaling->text("type", "default"));
  if (type == "default") return;
  if (type != "llama3")
    scaling->fail("the RoPE scaling '" + type + "' is not supported; expected default or llama3");
  rope.scaling = {scaling->at("factor").number(), scaling->at("low_freq_factor").number(),
                  scaling->at("high_freq_factor").number(),
                  whole(*scaling, "original_max_position_embeddings")};
}

config::ModelConfig read_llama(const io::JsonNode& c) {
  config::ModelConfig m{.family = config::Family::decoder,
                        .position = config::Position::rope,
                        .norm = config::Norm::rmsnorm};
  m.vocab_size = whole(c, "vocab_size", 32000);
  m.d_model = whole(c, "hidden_size", 4096), m.n_layers = layers(c, "num_hidden_layers", 32);
  m.n_heads = whole(c, "num_attention_heads", 32),
  m.n_kv_heads = whole(c, "num_key_value_heads", m.n_heads);
  if (m.n_heads > 0) m.d_head = whole(c, "head_dim", m.d_model / m.n_heads);
  m.d_ff = whole(c, "intermediate_size", 11008),
  m.max_seq_len = whole(c, "max_position_embeddings", 2048);
  m.activation = activation_of(c, "hidden_act", c.text("hidden_act", "silu"), true);
  m.norm_eps = real(c, "rms_norm_eps", 1e-6), m.init_std = real(c, "initializer_range", 0.02);
  m.bias = c.flag("attention_bias", false), m.head_bias = config::HeadBias::no;
  if (m.bias != c.flag("mlp_bias", false))
    c.fail("attention_bias and mlp_bias differ; expected both or neither");
  m.dropout.attention = real(c, "attention_dropout", 0);
  read_rope(c, m.rope);
  return m;
}

config::ModelConfig read_bert(const io::JsonNode& c) {
  must_say(c, "position_embedding_type", "absolute");
  must_be(c, "is_decoder", false);
  config::ModelConfig m{.family = config::Family::encoder,
                        .norm_position = config::NormPosition::post,
                        .embedding_norm = true,
                        .head_transform = true,
                        .head_bias = config::HeadBias::yes};
  m.vocab_size = whole(c, "vocab_size", 30522);
  m.d_model = whole(c, "hidden_size", 768), m.n_layers = layers(c, "num_hidden_layers", 12),
  m.n_heads = whole(c, "num_attention_heads", 12);
  m.d_ff = whole(c, "intermediate_size", 3072),
  m.max_seq_len = whole(c, "max_position_embeddings", 512);
  m.type_vocab_size = whole(c, "type_vocab_size", 2);
  m.padding_idx = whole(c, "pad_token_id", 0);
  m.activation = activation_of(c, "hidden_act", c.text("hidden_act", "gelu"), false);
  m.norm_eps = real(c, "layer_norm_eps", 1e-12), m.init_std = real(c, "initializer_range", 0.02);
  const double p = real(c, "hidden_dropout_prob", 0.1);
  m.dropout = {p, real(c, "attention_probs_dropout_prob", 0.1), p, 0};
  return m;
}

config::ModelConfig read_t5(const io::JsonNode& c) {
  config::ModelConfig m{.family = config::Family::encoder_decoder,
                        .position = config::Position::relative,
                        .norm = config::Norm::rmsnorm};
  m.bias = m.scale_attention = false, m.head_bias = config::HeadBias::no;
  m.vocab_size = whole(c, "vocab_size", 32128);
  m.d_model = whole(c, "d_model", 512), m.n_heads = whole(c, "num_heads", 8),
  m.d_head = whole(c, "d_kv", 64), m.d_ff = whole(c, "d_ff", 2048);
  m.n_encoder_layers = layers(c, "num_layers", 6),
  m.n_decoder_layers = layers(c, "num_decoder_layers", m.n_encoder_layers);
  m.relative = {whole(c, "relative_attention_num_buckets", 32),
                whole(c, "relative_attention_max_distance", 128)};
  m.max_seq_len = whole(c, "n_positions", 512);
  m.norm_eps = real(c, "layer_norm_epsilon", 1e-6);
  std::string act = c.text("feed_forward_proj", "relu");
  const bool gated = act.starts_with("gated-");
  if (gated) act = act == "gated-gelu" ? "gelu_new" : act.substr(6);
  m.activation = activation_of(c, "feed_forward_proj", act, gated);
  const double p = real(c, "dropout_rate", 0.1);
  m.dropout = {p, p, p, p};
  m.scale_logits = c.flag("scale_decoder_outputs", c.flag("tie_word_embeddings", true));
  m.tie_embeddings = config::TieEmbeddings::all;
  return m;
}

config::ModelConfig read_bart(const io::JsonNode& c, bool marian) {
  config::ModelConfig m{.family = config::Family::encoder_decoder,
                        .norm_position = config::NormPosition::post,
                        .tie_embeddings = config::TieEmbeddings::all,
                        .head_bias = config::HeadBias::yes};
  m.vocab_size = whole(c, "vocab_size", marian ? 58101 : 50265);
  m.d_model = whole(c, "d_model", 1024), m.n_encoder_layers = layers(c, "encoder_layers", 12),
  m.n_decoder_layers = layers(c, "decoder_layers", 12);
  m.n_heads = whole(c, "encoder_attention_heads", 16), m.d_ff = whole(c, "encoder_ffn_dim", 4096);
  if (whole(c, "decoder_attention_heads", 16) != m.n_heads)
    c.at("decoder_attention_heads")
        .fail("differs from encoder_attention_heads; expected equal stacks");
  if (whole(c, "decoder_ffn_dim", 4096) != m.d_ff)
    c.at("decoder_ffn_dim").fail("differs from encoder_ffn_dim; expected equal stacks");
  m.max_seq_len = whole(c, "max_position_embeddings", 1024),
  m.padding_idx = whole(c, "pad_token_id", marian ? 58100 : 1);
  m.activation =
      activation_of(c, "activation_function", c.text("activation_function", "gelu"), false);
  m.scale_embeddings = c.flag("scale_embedding", false), m.init_std = real(c, "init_std", 0.02);
  const double p = real(c, "dropout", 0.1);
  m.dropout = {p, real(c, "attention_dropout", 0), p, real(c, "activation_dropout", 0)};
  for (const char* key : {"normalize_before", "add_final_layer_norm"}) must_be(c, key, false);
  if (!marian) {
    m.position_offset = 2, m.embedding_norm = true;
    return m;
  }
  m.position = config::Position::sinusoidal, m.sinusoid = config::Sinusoid::halves;
  if (whole(c, "decoder_vocab_size", m.vocab_size) != m.vocab_size)
    c.at("decoder_vocab_size").fail("differs from vocab_size; expected one size");
  return m;
}

const std::map<std::string, std::function<config::ModelConfig(const io::JsonNode&)>> kReaders{
    {"gpt2", read_gpt2},
    {"llama", read_llama},
    {"bert", read_bert},
    {"t5", read_t5},
    {"bart", [](const io::JsonNode& c) { return read_bart(c, false); }},
    {"marian", [](const io::JsonNode& c) { return read_bart(c, true); }}};

void write_gpt2(Json& j, const config::ModelConfig& m) {
  j.update({{"n_embd", m.d_model},
            {"n_layer", m.n_layers},
            {"n_head", m.n_heads},
            {"n_inner", m.d_ff},
            {"n_positions", m.max_seq_len},
            {"activation_function", activation_name(j, "activation_function", m.activation)},
            {"scale_attn_weights", m.scale_attention},
            {"layer_norm_epsilon", m.norm_eps},
            {"embd_pdrop", m.dropout.embedding},
            {"attn_pdrop", m.dropout.attention},
            {"resid_pdrop", m.dropout.residual},
            {"initializer_range", m.init_std}});
}
void write_llama(Json& j, const config::ModelConfig& m) {
  j.update({{"hidden_size", m.d_model},
            {"num_hidden_layers", m.n_layers},
            {"num_attention_heads", m.n_heads},
            {"num_key_value_heads", m.n_kv_heads},
            {"head_dim", m.d_head},
            {"intermediate_size", m.d_ff},
            {"max_position_embeddings", m.max_seq_len},
            {"hidden_act", activation_name(j, "hidden_act", m.activation)},
            {"rms_norm_eps", m.norm_eps},
            {"attention_bias", m.bias},
            {"mlp_bias", m.bias},
            {"attention_dropout", m.dropout.attention},
            {"initializer_range", m.init_std},
            {"rope_theta", m.rope.theta}});
  const config::RopeScaling& s = m.rope.scaling;
  Json rope{{"rope_type", s.factor == 1 ? "default" : "llama3"}};
  if (s.factor != 1)
    rope.update({{"factor", s.factor},
                 {"low_freq_factor", s.low_freq_factor},
                 {"high_freq_factor", s.high_freq_factor},
                 {"original_max_position_embeddings", s.original_max_seq_len}});
  j["rope_scaling"] = s.factor == 1 ? Json() : rope;
  rope["rope_theta"] = m.rope.theta;
  j["rope_parameters"] = rope;
}
void write_bert(Json& j, const config::ModelConfig& m) {
  j.update({{"hidden_size", m.d_model},
            {"num_hidden_layers", m.n_layers},
            {"num_attention_heads", m.n_heads},
            {"intermediate_size", m.d_ff},
            {"max_position_embeddings", m.max_seq_len},
            {"type_vocab_size", m.type_vocab_size},
            {"hidden_act", activation_name(j, "hidden_act", m.activation)},
            {"layer_norm_eps", m.norm_eps},
            {"hidden_dropout_prob", m.dropout.residual},
            {"attention_probs_dropout_prob", m.dropout.attention},
            {"initializer_range", m.init_std}});
}
void write_t5(Json& j, const config::ModelConfig& m) {
  const std::string act = activation_name(j, "", m.activation);
  j.update({{"d_model", m.d_model},
            {"num_heads", m.n_heads},
            {"d_kv", m.d_head},
            {"d_ff", m.d_ff},
            {"num_layers", m.n_encoder_layers},
            {"num_decoder_layers", m.n_decoder_layers},
            {"relative_attention_num_buckets", m.relative.buckets},
            {"relative_attention_max_distance", m.relative.max_distance},
            {"n_positions", m.max_seq_len},
            {"layer_norm_epsilon", m.norm_eps},
            {"feed_forward_proj",
             m.gated() ? "gated-" + std::string(act == "gelu_new" ? "gelu" : act) : act},
            {"dropout_rate", m.dropout.residual},
            {"scale_decoder_outputs", m.scale_logits},
            {"is_encoder_decoder", true}});
}
void write_bart(Json& j, const config::ModelConfig& m, bool marian) {
  j.update({{"d_model", m.d_model},
            {"encoder_layers", m.n_encoder_layers},
            {"decoder_layers", m.n_decoder_layers},
            {"encoder_attention_heads", m.n_heads},
            {"decoder_attention_heads", m.n_heads},
            {"encoder_ffn_dim", m.d_ff},
            {"decoder_ffn_dim", m.d_ff},
            {"max_position_embeddings", m.max_seq_len},
            {"activation_function", activation_name(j, "activation_function", m.activation)},
            {"scale_embedding", m.scale_embeddings},
            {"dropout", m.dropout.residual},
            {"attention_dropout", m.dropout.attention},
            {"activation_dropout", m.dropout.ffn},
            {"init_std", m.init_std},
            {"is_encoder_decoder", true}});
  if (!marian) return;
  j["decoder_vocab_size"] = m.vocab_size;
  const char* share = "share_encoder_decoder_embeddings";  // version 5 of transformers has models
                                                           // with `true` and a table for each stack
  if (!j.contains(share))
    j[share] = m.tie_embeddings == config::TieEmbeddings::all ||
               m.tie_embeddings == config::TieEmbeddings::inputs;
}

}  // namespace

config::ModelConfig model_of_huggingface(const std::string& dir) {
  const std::string path = dir + "/config.json";
  const Json tree = io::read_json_file(path, kMostBytes);
  const io::JsonNode c(tree, path);
  const std::string type = c.at("model_type").string();
  const auto reader = kReaders.find(type);
  if (reader == kReaders.end())
    c.at("model_type")
        .fail("'" + type + "' is not supported; expected gpt2, llama, bert, t5, bart or marian");
  config::ModelConfig m = reader->second(c);
  if (m.translates())
    if (const auto start = c.find("decoder_start_token_id"))
      m.decoder_start = start->integer(0, kMost);
  config::Config filled;
  filled.model = m;
  config::fill_derived(filled);
  m = filled.model;
  if (m.d_model == 0 || m.n_heads == 0 || m.d_head == 0)
    c.fail("sizes of 0, or a width that the number of heads does not divide");
  return m;
}

std::string huggingface_type(const config::ModelConfig& m) {
  const bool pre = m.norm_position == config::NormPosition::pre,
             layernorm = m.norm == config::Norm::layernorm,
             full = m.n_kv_heads == m.n_heads && m.d_head * m.n_heads == m.d_model;
  const bool plain_head = !m.has_head_bias(),
             plain = !m.scale_embeddings && !m.embedding_norm && !m.scale_logits;
  if (m.family == config::Family::decoder) {
    if (m.position == config::Position::learned && m.position_offset == 0 && pre && layernorm &&
        full && m.bias && !m.gated() && plain && plain_head)
      return "gpt2";
    if (m.position == config::Position::rope && pre && !layernorm && m.gated() &&
        m.scale_attention && plain && plain_head)
      return "llama";
  }
  if (m.family == config::Family::encoder && m.position == config::Position::learned &&
      m.position_offset == 0 && !pre && layernorm && full && m.bias && !m.gated() &&
      m.embedding_norm && m.type_vocab_size > 0 && m.head_transform && m.has_head_bias() &&
      !m.scale_embeddings && m.scale_attention && !m.scale_logits)
    return "bert";
  if (m.translates()) {
    const bool t5_tie = m.tie_embeddings == config::TieEmbeddings::all ||
                        m.tie_embeddings == config::TieEmbeddings::inputs;
    if (m.position == config::Position::relative && pre && !layernorm && !m.bias &&
        !m.scale_attention && m.n_kv_heads == m.n_heads && t5_tie && plain_head &&
        !m.scale_embeddings && !m.embedding_norm)
      return "t5";
    const bool post = !pre && layernorm && full && m.bias && !m.gated() && m.scale_attention &&
                      !m.scale_logits && m.norm_eps == 1e-5;
    if (post && m.position == config::Position::learned && m.position_offset == 2 &&
        m.embedding_norm && m.tie_embeddings != config::TieEmbeddings::decoder)
      return "bart";
    if (post && m.position == config::Position::sinusoidal &&
        m.sinusoid == config::Sinusoid::halves && !m.embedding_norm)
      return "marian";
  }
  throw Error(ExitCode::usage,
              "no class of transformers computes what this model does; expected the options of "
              "GPT-2, Llama, BERT, T5, BART, or of "
              "MarianMT (post-norm layernorm with eps 1e-5, position sinusoidal with sinusoid "
              "halves, biases)");
}

std::string huggingface_config(const config::ModelConfig& m,
                               const std::optional<tokenizer::SpecialIds>& ids,
                               const std::string& original) {
  const std::string type = huggingface_type(m);
  static const std::map<std::string, std::string> classes{{"gpt2", "GPT2LMHeadModel"},
                                                          {"llama", "LlamaForCausalLM"},
                                                          {"t5", "T5ForConditionalGeneration"},
                                                          {"bart", "BartForConditionalGeneration"},
                                                          {"marian", "MarianMTModel"}};
  Json j = original.empty() ? Json::object() : Json::parse(original);
  if (!j.contains("architectures"))
    j["architectures"] = {type == "bert"
                              ? (m.next_sentence ? "BertForPreTraining" : "BertForMaskedLM")
                              : classes.at(type)};
  j["model_type"] = type;
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
  if (m.padding_idx >= 0) j["pad_token_id"] = m.padding_idx;
  if (m.decoder_start >= 0) j["decoder_start_token_id"] = m.decoder_start;
  if (type == "gpt2") write_gpt2(j, m);
  if (type == "llama") write_llama(j, m);
  if (type == "bert") write_bert(j, m);
  if (type == "t5") write_t5(j, m);
  if (type == "bart" || type == "marian") write_bart(j, m, type == "marian");
  return j.dump(2) + "\n";
}

}  // namespace tfm::huggingface
