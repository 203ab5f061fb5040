#include "launch/probe/contents.h"

#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <numeric>

#include "core/strings.h"
#include "models/registry.h"
#include "ops/attention_map.h"

namespace tfm::launch {
namespace {

constexpr std::string_view kMaps = "attention.", kLayers = "layers.", kCross = ".cross_attention";

// "attention.cross.3" for "decoder.layers.3.cross_attention".
std::string map_name(const std::string& mixer) {
  const std::size_t layers = mixer.find(kLayers), first = layers + kLayers.size();
  const std::string stack = mixer.ends_with(kCross) ? "cross." : mixer.substr(0, layers);
  return std::string(kMaps) + stack + mixer.substr(first, mixer.rfind('.') - first);
}

bool matches(const std::string& word, const std::string& name) {
  const auto as_path = [](std::string text) {
    std::ranges::replace(text, '.', '/');
    return text;
  };
  return word == kAll || fnmatch(as_path(word).c_str(), as_path(name).c_str(), FNM_PATHNAME) == 0;
}

std::int64_t head_of(const std::string& word, const std::string& text, const AttentionMap& map) {
  std::int64_t head = -1;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, head);
  if (error != std::errc{} || end != last || head < 0 || head >= std::ssize(map.heads))
    throw Error(ExitCode::usage, "--attention " + in_quotes(word) + ": expected a head from 0 to " +
                                     std::to_string(map.heads.size() - 1));
  return head;
}

// Whether each query's weights are one softmax over keys, each of which counts once.
bool has_map(const config::AttentionConfig& a) {
  return !a.global_projections && a.blocks.others != config::OtherBlocks::first;
}

std::string list(const Contents& c, const auto& batch, const auto& length) {
  std::string text;
  for (const Activation& a : c.activations)
    text +=
        a.name + " (" + batch + ", " + length(a.length) + ", " + std::to_string(a.width) + ")\n";
  for (const AttentionMap& m : c.maps)
    text += m.name + " (" + batch + ", " + std::to_string(m.heads.size()) + ", " +
            length(m.queries) + ", " + length(m.keys) + ")\n";
  return text;
}

}  // namespace

Contents::Contents(const config::Config& config, const nn::BatchShape& shape) {
  config::Config c = config;
  c.parallel = {};
  const auto stacks = c.model.stacks();
  const auto model = models::make_model(c, comm::single_mesh());
  const nn::Recording rec = model->record_loss(shape, DType::f32, false);
  for (const graph::NamedValue& v : rec.tape->named())
    activations.push_back({v.name, v.part.rows.sequence_length, v.part.all_columns});
  for (const graph::Node& node : rec.tape->nodes())
    if (const auto attention = ops::attention_node(node)) {
      const ops::AttentionOptions& o = *attention->options;
      const std::string mixer = node.name.substr(0, node.name.rfind('.'));
      if (!mixer.ends_with(kCross) && !has_map(layer_of(stacks, mixer).attention)) continue;
      AttentionMap& m = maps.emplace_back(map_name(mixer), node.name, o.queries, o.keys);
      m.heads.resize(static_cast<std::size_t>(o.heads));
      std::iota(m.heads.begin(), m.heads.end(), 0);
    }
  for (std::size_t s = 0; s < stacks.size(); ++s)
    for (std::size_t l = 0; l < stacks[s].size(); ++l) {
      const std::string stack = stacks.size() == 1 ? ""
                                : s == 0           ? "encoder."
                                                   : "decoder.",
                        name = std::string(kMaps) + stack + std::to_string(l);
      const config::AttentionConfig& a = stacks[s][l].attention;
      if (std::ranges::find(maps, name, &AttentionMap::name) == maps.end())
        mixers[name] = has_map(a) ? "of type " + a.type
                                  : "with projections of global tokens or blocks that count "
                                    "several times";
    }
}

std::vector<Activation> Contents::activations_of(const std::vector<std::string>& words) const {
  std::vector<bool> asked(activations.size());
  for (const std::string& word : words) {
    bool found = false;
    for (std::size_t i = 0; i < activations.size(); ++i)
      if (matches(word, activations[i].name)) found = asked[i] = true;
    if (!found) activation("--activations", word);
  }
  std::vector<Activation> all;
  for (std::size_t i = 0; i < activations.size(); ++i)
    if (asked[i]) all.push_back(activations[i]);
  return all;
}

const Activation& Contents::activation(const std::string& option, const std::string& name) const {
  const auto found = std::ranges::find(activations, name, &Activation::name);
  if (found != activations.end()) return *found;
  std::vector<std::string_view> names;
  for (const Activation& a : activations) names.push_back(a.name);
  const std::string near(nearest(name, names, 4));
  throw Error(ExitCode::usage, option + " " + in_quotes(name) +
                                   ": the model has nothing of that name" +
                                   (near.empty() ? "" : "; did you mean '" + near + "'?") +
                                   "; --list shows all names");
}

std::vector<AttentionMap> Contents::maps_of(const std::vector<std::string>& words) const {
  std::vector<AttentionMap> all;
  for (const std::string& word : words) {
    if (word == kAll && !maps.empty()) return maps;
    const std::size_t colon = word.find(':');
    const std::string layer = word.substr(0, colon), name = std::string(kMaps) + layer;
    if (const auto none = maps.empty() ? mixers.begin() : mixers.find(name); none != mixers.end())
      throw Error(ExitCode::usage, "--attention " + in_quotes(word) + ": attention " +
                                       none->second + " has no weights of keys to show");
    const auto found = std::ranges::find(maps, name, &AttentionMap::name);
    if (found == maps.end()) {
      std::vector<std::string_view> layers;
      for (const AttentionMap& m : maps)
        layers.push_back(std::string_view(m.name).substr(kMaps.size()));
      throw Error(ExitCode::usage, "--attention " + in_quotes(word) +
                                       ": expected a layer of the model, one of " + join(layers));
    }
    auto asked = std::ranges::find(all, name, &AttentionMap::name);
    if (asked == all.end()) {
      asked = all.insert(all.end(), *found);
      if (colon != std::string::npos) asked->heads.clear();
    }
    if (colon == std::string::npos)
      asked->heads = found->heads;
    else if (const std::int64_t head = head_of(word, word.substr(colon + 1), *found);
             std::ranges::find(asked->heads, head) == asked->heads.end())
      asked->heads.push_back(head);
  }
  return all;
}

const config::LayerConfig& layer_of(const std::vector<std::vector<config::LayerConfig>>& stacks,
                                    const std::string& part) {
  std::size_t layer = 0;
  const char* const digits = part.data() + part.find(kLayers) + kLayers.size();
  std::from_chars(digits, part.data() + part.size(), layer);
  return stacks.at(part.starts_with("decoder.") ? 1 : 0).at(layer);
}

std::string list_of_contents(const config::Config& config) {
  return list(
      Contents(config,
               {.sequences = 1, .length = 2, .source_length = config.model.translates() ? 3 : 0}),
      "B", [](std::int64_t length) { return length == 3 ? "S" : "T"; });
}

std::string list_of_contents(const config::Config& config, const nn::BatchShape& shape) {
  return list(Contents(config, shape), std::to_string(shape.sequences),
              [](std::int64_t length) { return std::to_string(length); });
}

}  // namespace tfm::launch
