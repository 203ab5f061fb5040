#include "huggingface/two_ropes.h"

#include <nlohmann/json.hpp>

#include "huggingface/llama_like.h"

namespace tfm::huggingface {
namespace {

constexpr const char *kLocal = "sliding_attention", *kGlobal = "full_attention",
                     *kAll = "rope_parameters", *kScaling = "rope_scaling";

config::RopeConfig rope_in(const io::JsonNode& c, const Thetas& thetas, std::int64_t max_seq_len,
                           bool local) {
  llama_like::Defaults defaults{.max_seq_len = max_seq_len};
  const Json none = Json::object();
  const io::JsonNode empty(none, "config.json");
  const auto all = c.find(kAll), own = all ? all->find(local ? kLocal : kGlobal) : std::nullopt;
  const io::JsonNode& given = own ? *own : empty;
  defaults.theta = real(c, local ? thetas.local : thetas.global,
                        local ? thetas.local_value : thetas.global_value);
  const auto scaling = local ? std::nullopt : c.find(kScaling);
  if (!scaling || scaling->members().empty()) return llama_like::rope_in(given, empty, defaults);
  defaults.theta = real(given, "rope_theta", defaults.theta);
  return llama_like::rope_in(*scaling, empty, defaults);
}

// What the first layer with a window, or without one, has; none: there is no such layer.
std::optional<config::RopeConfig> rope_of(const config::ModelConfig& m, bool local) {
  const auto stacks = m.stacks();
  for (const config::LayerConfig& l : stacks[0])
    if ((l.attention.window > 0) == local) return l.rope;
  return {};
}

}  // namespace

void read_two_ropes(config::ModelConfig& m, const io::JsonNode& c, const Thetas& thetas) {
  const config::RopeConfig local = rope_in(c, thetas, m.max_seq_len, true),
                           global = rope_in(c, thetas, m.max_seq_len, false);
  m.for_each_kind(
      [&](config::LayerConfig& l) { l.rope = l.attention.window > 0 ? local : global; });
}

void write_two_ropes(Json& j, const config::ModelConfig& m, const Thetas& thetas) {
  const auto before = j.find(kAll);
  // Of one rope for all layers, where another architecture had it.
  Json all = before != j.end() && before->is_object() && !before->contains("rope_type")
                 ? *before
                 : Json::object();
  set(j, {{kScaling, nullptr}});
  for (const bool local : {false, true}) {
    const auto rope = rope_of(m, local);
    if (!rope) continue;
    set(j, {{local ? thetas.local : thetas.global, rope->theta}});
    if (rope->scaling.on()) llama_like::write_rope(j, kScaling, *rope);
    set(llama_like::write_rope(all, local ? kLocal : kGlobal, *rope),
        {{"rope_theta", rope->theta}});
  }
  j[kAll] = all;
}

Needs two_ropes(const config::ModelConfig& m) {
  const auto stacks = m.stacks();
  const auto local = rope_of(m, true);
  using enum config::RopeScalingType;
  bool ropes = !local || !local->scaling.on();
  for (const config::LayerConfig& l : stacks[0])
    ropes &=
        l.rope == rope_of(m, l.attention.window > 0) && l.rope.fraction == 1 &&
        !(l.rope.scaling.on() && (l.rope.scaling.type == ntk || l.rope.scaling.type == longrope));
  return {
      {ropes,
       "one rope of layers with a window, without scaling, and one of the others, of whole heads, "
       "with scaling: {type: yarn}"}};
}

}  // namespace tfm::huggingface
