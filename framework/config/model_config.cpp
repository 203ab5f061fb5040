// The layers of a model.
#include "config/model_config.h"

#include <algorithm>
#include <numeric>

namespace tfm::config {

std::vector<std::string_view>& mixer_types() {
  static std::vector<std::string_view> all{"softmax", "latent", "linear", "gated_delta", "mamba2"};
  return all;
}
const std::vector<std::string_view>& recurrent_types() {
  static const std::vector<std::string_view> all{"gated_delta", "mamba2"};
  return all;
}

bool AttentionConfig::recurs() const {
  return std::ranges::find(recurrent_types(), type) != recurrent_types().end();
}
bool AttentionConfig::has_state() const { return type == "linear" || recurs(); }

std::vector<std::string_view>& head_types() {
  static std::vector<std::string_view> all{"lm", "classify", "tag", "regress", "embed"};
  return all;
}

std::vector<std::vector<LayerConfig>> ModelConfig::stacks() const {
  const auto filled = [this](const std::vector<std::string>& pattern, std::int64_t n) {
    std::vector<LayerConfig> stack(static_cast<std::size_t>(n), *this);
    for (std::size_t l = 0; !pattern.empty() && l < stack.size(); ++l) {
      const auto kind =
          std::ranges::find(layer_kinds, pattern[l % pattern.size()], &LayerKind::name);
      if (kind != layer_kinds.end()) stack[l] = kind->layer;
    }
    for (std::size_t l = 0; l < stack.size(); ++l)
      if (!expert_layers.has(static_cast<std::int64_t>(l))) stack[l].experts.count = 0;
    return stack;
  };
  if (!translates()) return {filled(layers, n_layers)};
  return {filled(encoder_layers, n_encoder_layers), filled(decoder_layers, n_decoder_layers)};
}

std::vector<std::pair<std::string, const LayerConfig*>> ModelConfig::kinds_in_use() const {
  std::vector<std::pair<std::string, const LayerConfig*>> all;
  const auto names = [](const std::vector<std::string>& pattern, const std::string& name) {
    return std::ranges::find(pattern, name) != pattern.end();
  };
  if (translates() ? encoder_layers.empty() || decoder_layers.empty() : layers.empty())
    all.emplace_back("model.", this);
  for (const LayerKind& kind : layer_kinds)
    if (names(layers, kind.name) || names(encoder_layers, kind.name) ||
        names(decoder_layers, kind.name))
      all.emplace_back("model.layer_kinds." + kind.name + ".", &kind.layer);
  return all;
}

std::int64_t ModelConfig::layers_with_experts() const {
  std::int64_t n = 0;
  for (const auto& stack : stacks())
    n += std::ranges::count_if(stack, [](const LayerConfig& l) { return l.experts.count > 0; });
  return n;
}

bool ModelConfig::uniform() const {
  return std::ranges::all_of(kinds_in_use(), [this](const auto& kind) {
    return *kind.second == static_cast<const LayerConfig&>(*this);
  });
}

bool ModelConfig::drops() const {
  const auto some = [](const LayerConfig& l) {
    return l.dropout != DropoutConfig{} || (l.experts.count > 0 && l.experts.jitter > 0);
  };
  return some(*this) ||
         std::ranges::any_of(layer_kinds, [&](const LayerKind& k) { return some(k.layer); });
}

bool ModelConfig::sees_prefixes() const {
  return std::ranges::any_of(kinds_in_use(),
                             [](const auto& kind) { return kind.second->attention.prefix; });
}

void ModelConfig::set_dropout(const DropoutConfig& everywhere) {
  for_each_kind([&](LayerConfig& l) { l.dropout = everywhere; });
}

const HeadConfig* ModelConfig::head(std::string_view name) const {
  const auto found = std::ranges::find(heads, name, &HeadConfig::name);
  return found == heads.end() ? nullptr : &*found;
}

const HeadConfig* ModelConfig::head_of_type(std::string_view type) const {
  const auto found = std::ranges::find_if(
      heads, [&](const HeadConfig& h) { return h.type == type && h.name != kNextSentence; });
  return found == heads.end() ? nullptr : &*found;
}

std::vector<const HeadConfig*> ModelConfig::labelled_heads() const {
  std::vector<const HeadConfig*> all;
  for (const HeadConfig& h : heads)
    if (h.labelled() && h.name != kNextSentence) all.push_back(&h);
  return all;
}

void ModelConfig::set_next_sentence(bool on) {
  std::erase_if(heads, [](const HeadConfig& h) { return h.name == kNextSentence; });
  if (on)
    heads.push_back({.type = "classify",
                     .name = std::string(kNextSentence),
                     .classes = 2,
                     .labels = {},
                     .pool = Pool::first,
                     .pooler = Pooler::tanh});
}

void ModelConfig::name_all_kinds() {
  const auto all = stacks();
  std::vector<LayerKind> kinds;
  for (std::size_t s = 0; s < all.size(); ++s) {
    std::vector<std::string>& pattern = pattern_of(s);
    pattern.clear();
    for (const LayerConfig& layer : all[s]) {
      auto at = std::ranges::find(kinds, layer, &LayerKind::layer);
      if (at == kinds.end()) at = kinds.insert(at, {"kind_" + std::to_string(kinds.size()), layer});
      pattern.push_back(at->name);
    }
  }
  layer_kinds = std::move(kinds);
  expert_layers = {};
}

std::vector<std::string>& ModelConfig::pattern_of(std::size_t stack) {
  return !translates() ? layers : stack == 0 ? encoder_layers : decoder_layers;
}

void ModelConfig::keep_layers(std::size_t stack, const std::vector<std::size_t>& kept) {
  std::vector<std::string>& pattern = pattern_of(stack);
  if (expert_layers != ExpertLayersConfig{}) name_all_kinds();
  std::vector<std::string> names;
  for (const std::size_t l : kept)
    if (!pattern.empty()) names.push_back(pattern[l % pattern.size()]);
  pattern = std::move(names);
  (!translates() ? n_layers : stack == 0 ? n_encoder_layers : n_decoder_layers) = std::ssize(kept);
}

void ModelConfig::shorten(std::int64_t least) {
  const auto all = stacks();
  for (std::size_t s = 0; s < all.size(); ++s) {
    const std::vector<LayerConfig>& stack = all[s];
    std::vector<std::size_t> kept, others;
    for (std::size_t l = 0; l < stack.size(); ++l) {
      const auto end = stack.begin() + static_cast<std::ptrdiff_t>(l);
      (std::find(stack.begin(), end, stack[l]) == end ? kept : others).push_back(l);
    }
    for (const std::size_t l : others)
      if (std::ssize(kept) < least) kept.push_back(l);
    std::ranges::sort(kept);
    keep_layers(s, kept);
  }
}

}  // namespace tfm::config
