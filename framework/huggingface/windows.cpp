#include "huggingface/windows.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace tfm::huggingface {
namespace {

constexpr const char *kWindow = "sliding_window", *kUsed = "use_sliding_window",
                     *kTypes = "layer_types", *kSliding = "sliding_attention",
                     *kFull = "full_attention";

using Widths = std::vector<std::int64_t>;  // of each layer

Widths windows_of(const config::ModelConfig& m) {
  const auto stacks = m.stacks();
  Widths all;
  for (const config::LayerConfig& l : stacks[0]) all.push_back(l.attention.window);
  return all;
}

// 0: no layer has a window.
std::int64_t widest(const Widths& all) { return all.empty() ? 0 : std::ranges::max(all); }

Widths windows_in(const io::JsonNode& c, std::int64_t layers, const Sliding& sliding) {
  const std::int64_t window = !sliding.if_used || c.flag(kUsed, false)
                                  ? window_in(c, sliding.window, sliding.key)
                                  : 0,
                     limit = whole(c, sliding.number, sliding.absent);
  Widths all;
  if (const auto types = c.find(kTypes)) {
    for (const io::JsonNode& type : types->items()) {
      const bool slides = type.string() == kSliding;
      if (!slides && type.string() != kFull)
        type.fail("'" + type.string() + "' is not supported; expected '" + kFull + "' or '" +
                  kSliding + "'");
      if (slides && window == 0)
        type.fail("there is no window; expected " +
                  (sliding.if_used ? std::string(kUsed) + " true and a " : "a ") + sliding.key);
      all.push_back(slides ? window : 0);
    }
    if (std::ssize(all) != layers)
      types->fail("has " + std::to_string(all.size()) + " types; expected one for each of the " +
                  std::to_string(layers) + " layers (num_hidden_layers)");
    return all;
  }
  for (std::int64_t l = 0; l < layers; ++l) all.push_back(sliding.slides(l, limit) ? window : 0);
  return all;
}

}  // namespace

std::int64_t window_in(const io::JsonNode& c, std::int64_t absent, const char* key) {
  if (!has_member(c, key)) return absent;
  const auto given = c.find(key);
  return given ? given->integer(1, INT32_MAX) : 0;
}

void write_window(Json& j, const config::ModelConfig& m, std::int64_t absent) {
  const std::int64_t window = widest(windows_of(m));
  if (contains(j, kWindow) || window != absent)
    set(j, {{kWindow, window > 0 ? MemberValue(window) : MemberValue(nullptr)}});
}

bool slides_after(std::int64_t layer, std::int64_t max_window_layers) {
  return layer >= max_window_layers;
}

namespace {

// A kind for the first layer, and those of the others that there are.
void read_after_first(config::ModelConfig& m, const Widths& all) {
  const config::LayerConfig base = m;
  for (std::size_t l = 0; l < all.size(); ++l) {
    const char* name = l == 0 ? "first" : all[l] > 0 ? "local" : "global";
    if (std::ranges::find(m.layers, name) == m.layers.end()) {
      config::LayerConfig& kind = m.layer_kinds.emplace_back(name, base).layer;
      kind.attention.window = all[l];
      kind.attention_norm = l > 0;
    }
    m.layers.emplace_back(name);
  }
}

}  // namespace

void read_windows(config::ModelConfig& m, const io::JsonNode& c, const Sliding& sliding) {
  const Widths all = windows_in(c, m.n_layers, sliding);
  const std::int64_t window = widest(all);
  if (!sliding.first_norm) return read_after_first(m, all);
  std::size_t period = 1;
  while (period < all.size() &&
         !std::equal(all.begin() + static_cast<std::ptrdiff_t>(period), all.end(), all.begin()))
    ++period;
  if (period == 1) {
    m.attention.window = window;
    return;
  }
  for (std::size_t l = 0; l < period; ++l) m.layers.emplace_back(all[l] > 0 ? "local" : "global");
  m.layer_kinds = {{"local", m}, {"global", m}};
  m.layer_kinds[0].layer.attention.window = window;
}

void write_windows(Json& j, const config::ModelConfig& m, const Sliding& sliding) {
  const Widths all = windows_of(m);
  if (contains(j, sliding.if_used ? kUsed : sliding.key)) try {
      if (windows_in(io::JsonNode(j, "config.json"), m.n_layers, sliding) == all) return;
    } catch (const Error&) {  // it is of another architecture
    }
  const std::int64_t window = widest(all);
  if (sliding.if_used) set(j, {{kUsed, window > 0}});
  if (window > 0) set(j, {{sliding.key, window}});
  if (sliding.if_used && window == 0 && !contains(j, kTypes)) return;
  j[kTypes] = Json::array();
  for (const std::int64_t w : all) j[kTypes].push_back(w > 0 ? kSliding : kFull);
}

}  // namespace tfm::huggingface
