// Longformer (Beltagy et al. 2020): RoBERTa with a window of each layer. The first token sees all,
// by projections of its own, and is seen by all, as transformers' classifiers have it;
// its global_attention_mask is an input.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "huggingface/roberta_like.h"

namespace tfm::huggingface {
namespace {

constexpr const char *kBase = "longformer.", *kWindow = "attention_window";
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
  config::ModelConfig m = roberta_like::read(c, 30522);
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

void write(Json& j, const config::ModelConfig& m) {
  roberta_like::write(j, m);
  const std::vector<std::int64_t> windows = windows_of(m);
  if (contains(j, kWindow) && windows_in(io::JsonNode(j, "config.json"), m.n_layers) == windows)
    return;
  j[kWindow] = windows;
}

Needs needs(const config::ModelConfig& m) {
  const auto even = [](std::int64_t window) { return window > 0 && window % 2 == 0; };
  return roberta_like::needs(m) +
         Needs{{std::ranges::all_of(windows_of(m), even), "even windows (attention.window)"},
               {m.attention.global_tokens == kGlobal, "attention: {global_tokens: 1}"},
               {m.attention.global_projections, "attention: {global_projections: true}"}};
}

void tensors(Table& t, const config::ModelConfig& m) {
  roberta_like::tensors(t, m, kBase);
  for (std::int64_t l = 0; l < m.n_layers; ++l)
    for (const std::string part : {"query", "key", "value"})
      t.linear(
          "longformer.encoder.layer." + std::to_string(l) + ".attention.self." + part + "_global",
          "layers." + std::to_string(l) + ".attention.global_" + part, m.d_model, m.d_model, true);
}

}  // namespace

Architecture longformer() {
  return {
      .name = "longformer",
      .family = config::Family::encoder,
      .class_name = [](const config::ModelConfig&) { return std::string("LongformerForMaskedLM"); },
      .read = read,
      .read_heads = roberta_like::read_heads,
      .write = write,
      .needs = needs,
      .tensors = tensors,
      .base = kBase,
      .heads = {"lm_head."},
      .tied = [](const config::ModelConfig& m) { return roberta_like::tied(m, kBase); },
      .is_buffer = [](const std::string& t) { return roberta_like::is_buffer(t, kBase); },
      .windows = Windows::any,
      .has = {Feature::global_tokens}};
}

}  // namespace tfm::huggingface
