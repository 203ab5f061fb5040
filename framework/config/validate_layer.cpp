// Rules of one layer, whatever model it is in.
#include "config/rules.h"
#include "core/strings.h"

namespace tfm::config {
namespace {

void check_heads(const LayerConfig& l, const std::string& path, const ModelConfig& m,
                 const Report& report) {
  if (l.d_head == 0 && l.n_heads > 0 && m.d_model % l.n_heads != 0)
    report({path + "n_heads", "model.d_model", "model.preset"},
           "d_model " + std::to_string(m.d_model) + " is not divisible by n_heads " +
               std::to_string(l.n_heads) + " (" + std::to_string(m.d_model) + " = " +
               std::to_string(m.d_model / l.n_heads) + " * " + std::to_string(l.n_heads) + " + " +
               std::to_string(m.d_model % l.n_heads) + "); legal values of n_heads are " +
               listed(divisors(m.d_model), l.n_heads),
           "or set d_head explicitly");
  if (l.n_kv_heads > 0 && l.n_heads % l.n_kv_heads != 0)
    report({path + "n_kv_heads", path + "n_heads", "model.preset"},
           "n_heads " + std::to_string(l.n_heads) + " is not divisible by n_kv_heads " +
               std::to_string(l.n_kv_heads) + "; legal values of n_kv_heads are " +
               listed(divisors(l.n_heads), l.n_kv_heads),
           "");
}

// The two limits of a ramp.
void check_order(const std::string& path, const char* low, double low_value, const char* high,
                 double high_value, const Report& report) {
  if (low_value > 0 && low_value < high_value) return;
  report({path + low, path + high, path + "factor"},
         std::string(low) + " " + number_text(low_value) + " and " + high + " " +
             number_text(high_value) + " are out of order; expected 0 < " + low + " < " + high,
         "");
}

void check_scaling(const LayerConfig& l, const std::string& path, const ModelConfig& m,
                   std::int64_t columns, const Report& report) {
  using enum RopeScalingType;
  const RopeScaling& s = l.rope.scaling;
  const std::string key = path + "rope.scaling.";
  const RopeScaling usual;
  const auto given = [&](auto RopeScaling::*member) { return s.*member != usual.*member; };
  for (const auto& [is_given, name, fits, types] :
       {std::tuple{given(&RopeScaling::low_freq_factor), "low_freq_factor", s.type == llama3,
                   "llama3"},
        {given(&RopeScaling::high_freq_factor), "high_freq_factor", s.type == llama3, "llama3"},
        {given(&RopeScaling::beta_fast), "beta_fast", s.type == yarn, "yarn"},
        {given(&RopeScaling::beta_slow), "beta_slow", s.type == yarn, "yarn"},
        {given(&RopeScaling::truncate), "truncate", s.type == yarn, "yarn"},
        {given(&RopeScaling::mscale), "mscale", s.type == yarn, "yarn"},
        {given(&RopeScaling::mscale_all_dim), "mscale_all_dim", s.type == yarn, "yarn"},
        {given(&RopeScaling::attention_factor), "attention_factor",
         s.type == yarn || s.type == longrope, "yarn or longrope"}})
    only_with(report)(is_given, fits, key + name, std::string("rope.scaling.type ") + types, "");
  only_with(report)(s.mscale > 0, s.mscale_all_dim > 0, key + "mscale",
                    "rope.scaling.mscale_all_dim above 0", "");
  only_with(report)(s.attention_factor > 0, s.on(), key + "attention_factor",
                    "rope.scaling.factor above 1", "auto");
  if (!s.on()) return;
  if (s.type == yarn && !(l.rope.theta > 1))
    report({path + "rope.theta", key + "type"},
           "type yarn counts by the logarithm of theta; expected theta above 1, found " +
               number_text(l.rope.theta),
           "");
  if (s.type == longrope && s.original_max_seq_len < 2)
    report({key + "original_max_seq_len", key + "type"},
           "type longrope counts by the logarithm of original_max_seq_len; expected at least 2",
           "");
  if (s.type == llama3)
    check_order(key, "low_freq_factor", s.low_freq_factor, "high_freq_factor", s.high_freq_factor,
                report);
  if (s.type == yarn) check_order(key, "beta_slow", s.beta_slow, "beta_fast", s.beta_fast, report);
  if (s.type == ntk && columns <= 2)
    report({key + "type", path + "rope.fraction", path + "d_head"},
           "type ntk needs more than 2 columns that turn; a head has " + std::to_string(columns),
           "");
  if (s.type != longrope) return;
  for (const auto& [name, factors] : {std::pair{"short_factor", &m.longrope.short_factor},
                                      {"long_factor", &m.longrope.long_factor}})
    if (std::ssize(*factors) != columns / 2)
      report({std::string("model.longrope.") + name, key + "type"},
             std::string(name) + " has " + counted(std::ssize(*factors), "number") +
                 ", but heads have " + counted(columns / 2, "pair") +
                 " of columns that turn; expected one for each",
             "");
}

void check_rope(const LayerConfig& l, const std::string& path, const ModelConfig& m,
                const Report& report) {
  if (l.position != Position::rope) return;
  if (l.attention.type == "latent") {
    only_with(report)(l.rope.fraction != 1, false, path + "rope.fraction", "attention.type softmax",
                      "1");
    return check_scaling(l, path, m, l.attention.rope_size, report);
  }
  const std::int64_t columns = l.rope.columns(l.d_head);
  if (columns % 2 != 0 || columns == 0)
    report({path + (l.rope.fraction == 1 ? "d_head" : "rope.fraction"), path + "position",
            path + "n_heads"},
           l.rope.fraction == 1
               ? "d_head " + std::to_string(l.d_head) +
                     " is odd, but position rope rotates pairs of elements; expected an even d_head"
               : std::to_string(columns) + " of the " + counted(l.d_head, "column") +
                     " of a head turn (fraction " + number_text(l.rope.fraction) +
                     "), but position rope rotates pairs; expected an even number of at least 2",
           "");
  check_scaling(l, path, m, columns, report);
}

void check_attention(const LayerConfig& l, const std::string& path, const Report& report) {
  const AttentionConfig& a = l.attention;
  for (const auto& [given, key] : {std::pair{a.window > 0, "window"},
                                   {a.softcap > 0, "softcap"},
                                   {a.query_scalar > 0, "query_scalar"}})
    only_with(report)(given, a.type == "softmax" || a.type == "latent", path + "attention." + key,
                      "attention.type softmax or latent",
                      given && key == std::string("query_scalar") ? "auto" : "0");
  for (const auto& [given, key] : {std::pair{a.sinks, "sinks"}, {a.output_gate, "output_gate"}})
    only_with(report)(given, a.type == "softmax", path + "attention." + key,
                      "attention.type softmax", "false");
  only_with(report)(a.query_scalar > 0, l.scale_attention, path + "attention.query_scalar",
                    "scale_attention true", "auto");
}

// Rules of what is seen beyond a window.
void check_landmarks(const LayerConfig& l, const std::string& path, const ModelConfig& m,
                     const Report& report) {
  const AttentionConfig& a = l.attention;
  const std::string key = path + "attention.", blocks = key + "blocks.";
  const bool scores = a.type == "softmax" || a.type == "latent",
             encoder = m.family == Family::encoder;
  const auto only = only_with(report);
  only(a.global_tokens > 0, scores, key + "global_tokens", "attention.type softmax or latent", "0");
  only(a.blocks.size > 0, scores, blocks + "size", "attention.type softmax or latent", "0");
  only(a.blocks.random > 0, a.blocks.size > 0, blocks + "random", "attention.blocks.size above 0",
       "0");
  const bool first = a.blocks.others == OtherBlocks::first;
  only(first, a.blocks.size > 0, blocks + "others", "attention.blocks.size above 0", "drawn");
  only(first, encoder, blocks + "others", "family encoder", "drawn");
  only(a.blocks.seed > 0, a.blocks.random > 0 && !first, blocks + "seed",
       "attention.blocks.random above 0 and others drawn", "0");
  if (a.blocks.size > 0 && a.window > 0)
    report({blocks + "size", key + "window"},
           "blocks of " + std::to_string(a.blocks.size) +
               " positions take the place of a window, but window is " + std::to_string(a.window) +
               "; expected one of them to be 0",
           "");
  const std::string strided = key + "strided.";
  only(a.strided.step > 0, scores && a.window > 0 && !a.prefix, strided + "step",
       "attention.type softmax or latent, window above 0 and prefix false", "0");
  only(a.strided.reach > 0, a.strided.step > 0, strided + "reach", "attention.strided.step above 0",
       "0");
  if (a.strided.step > 0 && a.strided.reach > 0 && a.strided.reach < a.strided.step)
    report({strided + "reach", strided + "step"},
           "a reach of " + counted(a.strided.reach, "position") +
               " ends before the first step of " + std::to_string(a.strided.step) +
               "; expected a reach of at least one step",
           "");
  if (a.prefix) {
    const std::string name = key + "prefix";
    only(true, m.family == Family::decoder, name, "family decoder", "false");
    only(true, a.type == "softmax", name, "attention.type softmax", "false");
    only(true, a.global_tokens == 0 && a.blocks.size == 0, name,
         "attention.global_tokens 0 and blocks.size 0", "false");
  }
  if (!a.global_projections) return;
  const std::string name = key + "global_projections";
  only(true, a.type == "softmax", name, "attention.type softmax", "false");
  only(true, a.global_tokens > 0, name, "attention.global_tokens above 0", "false");
  only(true, encoder, name, "family encoder", "false");
}

void check_latent(const LayerConfig& l, const std::string& path, const Report& report) {
  const AttentionConfig& a = l.attention;
  const std::string key = path + "attention.";
  const bool latent = a.type == "latent";
  for (const auto& [name, value] :
       {std::pair{"q_rank", a.q_rank}, {"kv_rank", a.kv_rank}, {"rope_size", a.rope_size}})
    only_with(report)(value > 0, latent, key + name, "attention.type latent", "0");
  only_with(report)(a.value_size > 0, latent || a.recurs(), key + "value_size",
                    "attention.type latent, " + join(recurrent_types()), "0");
  if (!latent) return;
  const auto wrong = [&](const char* other, const std::string& problem) {
    report({key + "type", path + other}, "attention.type latent " + problem, "");
  };
  if (l.position != Position::rope)
    wrong("position",
          "turns columns with the position; expected position rope, found " + word(l.position));
  if (l.n_kv_heads != l.n_heads)
    wrong("n_kv_heads", "has keys and values for each head; expected n_kv_heads " +
                            std::to_string(l.n_heads) + ", found " + std::to_string(l.n_kv_heads));
  if (l.qk_norm != QkNorm::none)
    wrong("qk_norm", "has norms of its own; expected qk_norm false, found " + word(l.qk_norm));
  if (a.rope_size < 2 || a.rope_size % 2 != 0 || a.rope_size >= l.d_head)
    report({key + "rope_size", path + "d_head"},
           "rope_size " + std::to_string(a.rope_size) +
               " is a part of the heads whose columns turn in pairs; expected an even number, at "
               "least 2 and less than d_head " +
               std::to_string(l.d_head),
           "");
  else if (a.value_size < 1 || a.value_size > l.d_head)
    report({key + "value_size", path + "d_head"},
           "value_size " + std::to_string(a.value_size) +
               " is out of range; expected 1 to d_head " + std::to_string(l.d_head),
           "");
}

// Rules of the mixers that have states in place of scores.
void check_states(const LayerConfig& l, const std::string& path, const Report& report) {
  const std::string& type = l.attention.type;
  if (!l.attention.has_state()) return;
  const auto wrong = [&](const std::string& other, const std::string& problem) {
    report({path + "attention.type", path + other}, "attention.type " + type + " " + problem, "");
  };
  using enum Position;
  if (l.position != none && l.position != learned && l.position != sinusoidal)
    wrong("position",
          "has no scores that depend on distances; expected position none, learned or sinusoidal, "
          "found " +
              word(l.position));
  if (l.n_kv_heads != l.n_heads)
    wrong("n_kv_heads", "has no groups of heads; expected n_kv_heads " + std::to_string(l.n_heads) +
                            (l.attention.recurs() ? ", and attention.key_heads " : ", found ") +
                            std::to_string(l.n_kv_heads));
  if (l.qk_norm != QkNorm::none)
    wrong("qk_norm",
          "makes features of queries and keys of its own; expected qk_norm false, found " +
              word(l.qk_norm));
  if (!l.scale_attention)
    wrong("scale_attention", "has no scores to scale; expected scale_attention true");
  if (l.dropout.attention > 0)
    wrong("dropout.attention",
          "has no probabilities to drop; expected dropout.attention 0, found " +
              number_text(l.dropout.attention));
}

void check_recurrence(const LayerConfig& l, const std::string& path, const ModelConfig& m,
                      const Report& report) {
  const AttentionConfig& a = l.attention;
  const std::string key = path + "attention.";
  for (const auto& [name, value] :
       {std::pair{"key_heads", a.key_heads}, {"convolution", a.convolution}})
    only_with(report)(value > 0, a.recurs(), key + name,
                      "attention.type " + join(recurrent_types()), "0");
  if (!a.recurs()) return;
  if (m.family == Family::encoder)
    report({key + "type", "model.family"},
           "attention.type " + a.type +
               " passes a state from position to position; expected family decoder",
           "");
  if (a.key_heads > 0 && l.n_heads % a.key_heads != 0)
    report({key + "key_heads", path + "n_heads"},
           "n_heads " + std::to_string(l.n_heads) + " is not divisible by key_heads " +
               std::to_string(a.key_heads) + "; legal values of key_heads are " +
               listed(divisors(l.n_heads), a.key_heads),
           "");
  if (a.convolution == 1)
    report({key + "convolution"}, "convolution 1 is of no other position; expected 2 to 8", "");
}

void check_norms(const LayerConfig& l, const std::string& path, const Report& report) {
  if (l.qk_norm == QkNorm::whole && l.norm != Norm::rmsnorm)
    report({path + "qk_norm", path + "norm"},
           "qk_norm whole is an RMSNorm, but norm is " + word(l.norm) +
               "; expected norm rmsnorm, or qk_norm true",
           "");
  only_with(report)(!l.attention_norm, l.norm_position == NormPosition::pre,
                    path + "attention_norm", "norm_position pre", "true");
  only_with(report)(l.norm_eps_outside, l.qk_norm != QkNorm::whole, path + "norm_eps_outside",
                    "qk_norm true or false", "false");
  if (l.qk_norm == QkNorm::whole && l.norm_plus_one)
    report({path + "norm_plus_one", path + "qk_norm"},
           "norms of qk_norm whole multiply by their weight itself; expected norm_plus_one false, "
           "or qk_norm true",
           "");
}

void check_experts(const LayerConfig& l, const std::string& path, const Report& report) {
  const ExpertsConfig& e = l.experts;
  const std::string key = path + "experts.";
  if (e.count == 0) {
    if (e.capacity_factor > 0)
      report(
          {key + "capacity_factor", key + "count"},
          "capacity_factor limits what experts take, of which there are none (count 0); expected "
          "capacity_factor 0, or count >= 1",
          "");
    for (const auto& [given, name, instead] : {std::tuple{e.groups > 1, "groups", "1"},
                                               {e.router_bias, "router_bias", "false"},
                                               {e.jitter > 0, "jitter", "0"},
                                               {e.capacity > 0, "capacity", "0"}})
      only_with(report)(given, false, key + name, "count >= 1", instead);
    return;
  }
  if (e.capacity > 0 && e.capacity_factor > 0)
    report(
        {key + "capacity", key + "capacity_factor"},
        "capacity and capacity_factor both limit what experts take; expected one of them to be 0",
        "");
  if (e.top_k > e.count)
    report({key + "top_k", key + "count"},
           "top_k " + std::to_string(e.top_k) + " exceeds the " + counted(e.count, "expert") +
               " (count); expected at most as many",
           "");
  if (e.groups > 1 && (e.count % e.groups != 0 || e.count / e.groups < 2))
    report({key + "groups", key + "count"},
           "the " + counted(e.count, "expert") + " (count) make no " + std::to_string(e.groups) +
               " equal groups of at least 2; expected groups that divide count",
           "");
  else if (e.top_groups > e.groups)
    report({key + "top_groups", key + "groups"},
           "top_groups " + std::to_string(e.top_groups) + " exceeds the " +
               counted(e.groups, "group") + " (groups); expected at most as many",
           "");
  else if (e.top_k <= e.count && e.top_k > e.top_groups * (e.count / e.groups))
    report({key + "top_k", key + "top_groups"},
           "top_k " + std::to_string(e.top_k) + " exceeds the " +
               counted(e.top_groups * (e.count / e.groups), "expert") +
               " of top_groups groups; expected at most as many",
           "");
  if (e.shared_gate && (e.shared == 0 || l.has_ffn_bias()))
    report({key + "shared_gate", key + "shared"},
           e.shared == 0 ? "shared_gate weighs shared experts, of which there are none; expected "
                           "shared >= 1, or shared_gate false"
                         : "shared_gate is not possible with biases; expected ffn_bias false",
           "");
}

}  // namespace

void check_layer(const LayerConfig& l, const std::string& path, const ModelConfig& m,
                 const Report& report) {
  check_heads(l, path, m, report);
  check_rope(l, path, m, report);
  check_attention(l, path, report);
  check_landmarks(l, path, m, report);
  check_latent(l, path, report);
  check_states(l, path, report);
  check_recurrence(l, path, m, report);
  check_norms(l, path, report);
  check_experts(l, path, report);
}

}  // namespace tfm::config
