// Longformer (Beltagy et al. 2020): RoBERTa with a window of each layer. The first token sees all,
// by projections of its own, and is seen by all, as transformers' classifiers have it;
// its global_attention_mask is an input.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "huggingface/bert_like.h"

namespace tfm::huggingface {
namespace {

constexpr const char* kWindow = "attention_window";
constexpr std::int64_t kGlobal = 1;  // tokens

// Of each layer.
std::vector<std::int64_t> windows_in(const io::JsonNode& c, std::int64_t layers) {
  const auto one = [](const io::JsonNode& n) {
    const std::int64_t window = n.integer(2, INT32_MAX);
    if (window % 2 != 0) n.fail(std::to_string(window) + " is odd; expected an even number");
    return window;
  };
  const auto given = c.find(kWindow);
  if (!given) return std::vector<std::int64_t>(static_cast<std::size_t>(layers), 512);
  if (!given->is_array())
    return std::vector<std::int64_t>(static_cast<std::size_t>(layers), one(*given));
  std::vector<std::int64_t> all;
  for (const io::JsonNode& n : given->items()) all.push_back(one(n));
  if (std::ssize(all) != layers)
    given->fail("has " + std::to_string(all.size()) + " windows; expected one for each of the " +
                std::to_string(layers) + " layers (num_hidden_layers)");
  return all;
}

std::vector<std::int64_t> windows_of(const config::ModelConfig& m) {
  const auto stacks = m.stacks();
  std::vector<std::int64_t> all;
  for (const config::LayerConfig& l : stacks[0]) all.push_back(l.attention.window);
  return all;
}

config::ModelConfig read(const io::JsonNode& c) {
  config::ModelConfig m = bert_like::read(c, 30522, 1);
  if (m.padding_idx < 0) c.fail("pad_token_id is null; expected an id, as positions count from it");
  must_say(c, "hidden_act", "gelu");  // transformers' LM head uses GELU whatever this says
  m.position_offset = m.padding_idx + 1;
  if (m.max_seq_len <= m.position_offset)
    c.fail("max_position_embeddings " + std::to_string(m.max_seq_len) +
           " is not greater than pad_token_id " + std::to_string(m.padding_idx));
  m.max_seq_len -= m.position_offset;
  m.attention.global_tokens = kGlobal, m.attention.global_projections = true;
  const std::vector<std::int64_t> windows = windows_in(c, m.n_layers);
  m.attention.window = windows.front();
  if (std::ranges::count(windows, windows.front()) == std::ssize(windows)) return m;
  const config::LayerConfig base = m;
  for (const std::int64_t window : windows) {
    const std::string name = "window_" + std::to_string(window);
    if (std::ranges::find(m.layers, name) == m.layers.end())
      m.layer_kinds.emplace_back(name, base).layer.attention.window = window;
    m.layers.push_back(name);
  }
  return m;
}

void read_heads(config::ModelConfig& m, const io::JsonNode& c, const Has& has) {
  m.tie_embeddings = output_is_tied(c, true, has, "lm_head.decoder.weight")
                         ? config::TieEmbeddings::yes
                         : config::TieEmbeddings::no;
}

void write(Json& j, const config::ModelConfig& m) {
  bert_like::write(j, m);
  set(j, {{"max_position_embeddings", m.max_seq_len + m.position_offset}});
  const std::vector<std::int64_t> windows = windows_of(m);
  if (contains(j, kWindow) && windows_in(io::JsonNode(j, "config.json"), m.n_layers) == windows)
    return;
  j[kWindow] = windows;
}

Needs needs(const config::ModelConfig& m) {
  const auto even = [](std::int64_t window) { return window > 0 && window % 2 == 0; };
  return bert_like::needs(m) +
         Needs{{m.position_offset > 0, "position_offset: 1 or more"},
               {m.padding_idx == m.position_offset - 1, "padding_idx: position_offset - 1"},
               {m.activation == config::Activation::gelu, "activation: gelu"},
               {!m.next_sentence(), "next_sentence: false"},
               {std::ranges::all_of(windows_of(m), even), "even windows (attention.window)"},
               {m.attention.global_tokens == kGlobal, "attention: {global_tokens: 1}"},
               {m.attention.global_projections, "attention: {global_projections: true}"}};
}

void tensors(Table& t, const config::ModelConfig& m) {
  bert_like::tensors(t, m, {"longformer.", "lm_head.", "dense", "layer_norm"});
  for (std::int64_t l = 0; l < m.n_layers; ++l)
    for (const std::string part : {"query", "key", "value"})
      t.linear(
          "longformer.encoder.layer." + std::to_string(l) + ".attention.self." + part + "_global",
          "layers." + std::to_string(l) + ".attention.global_" + part, m.d_model, m.d_model, true);
}

std::vector<std::vector<std::string>> tied(const config::ModelConfig& m) {
  return bert_like::tied(m, "longformer.", "lm_head.");
}

bool is_buffer(const std::string& tensor) {
  return tensor == "longformer.embeddings.position_ids" ||
         tensor == "longformer.embeddings.token_type_ids" ||
         tensor.starts_with("longformer.pooler.dense.");
}

}  // namespace

Architecture longformer() {
  return {
      .name = "longformer",
      .family = config::Family::encoder,
      .class_name = [](const config::ModelConfig&) { return std::string("LongformerForMaskedLM"); },
      .read = read,
      .read_heads = read_heads,
      .write = write,
      .needs = needs,
      .tensors = tensors,
      .base = "longformer.",
      .heads = {"lm_head."},
      .tied = tied,
      .is_buffer = is_buffer,
      .windows = Windows::any,
      .has = {Feature::global_tokens}};
}

}  // namespace tfm::huggingface
