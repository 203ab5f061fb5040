#include "huggingface/architecture.h"

#include <algorithm>
#include <set>

#include "core/error.h"

namespace tfm::huggingface {

Architecture gpt2(), llama(), mistral(), mixtral(), qwen2(), qwen2_moe(), qwen3(), qwen3_moe(),
    deepseek_v3(), qwen3_next(), bamba(), gpt_oss(), olmo2(), gemma2(), gemma3_text(), phi3(),
    bert(), distilbert(), roberta(), modernbert(), big_bird(), longformer(), t5(),
    switch_transformers(), bart(), marian(), m2m_100();

namespace {

// Where several compute the same, an export without a chosen architecture writes the first.
const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> all{
      gpt2(),    llama(),      mistral(),     mixtral(),    qwen2(), qwen2_moe(),
      qwen3(),   qwen3_moe(),  deepseek_v3(), qwen3_next(), bamba(), gpt_oss(),
      olmo2(),   gemma2(),     gemma3_text(), phi3(),       bert(),  distilbert(),
      roberta(), modernbert(), big_bird(),    longformer(), t5(),    switch_transformers(),
      bart(),    marian(),     m2m_100()};
  return all;
}

// Gives `l` the attention of `base` in place of another mixer.
void as_attention(config::LayerConfig& l, const config::LayerConfig& base) {
  l.attention = base.attention;
  l.n_heads = base.n_heads, l.n_kv_heads = base.n_kv_heads, l.d_head = base.d_head;
  l.qk_norm = base.qk_norm, l.position = base.position, l.rope = base.rope;
  l.dropout.attention = base.dropout.attention;
}

// Whether layers are alike but for their windows, and what goes with them.
bool alike_but_windows(const Architecture& a, config::ModelConfig m) {
  if (!a.first_norm) m.attention_norm = true;
  m.for_each_kind([&, base = config::LayerConfig(m), rope = m.rope,
                   experts = m.experts](config::LayerConfig& l) {
    l.attention.window = 0;
    if (a.some_experts && l.experts.count == 0) l.experts = experts;
    if (!a.first_norm) l.attention_norm = true;
    if (a.recurrent && l.attention.type == a.recurrent) as_attention(l, base);
    if (a.local_rope) l.rope = rope;
  });
  return m.uniform();
}

// What the windows need to be that the architecture does not have; null: it has them.
const char* unmet_windows(const Architecture& a, const config::ModelConfig& m) {
  std::set<std::int64_t> windows;
  for (const auto& stack : m.stacks())
    for (const config::LayerConfig& l : stack) windows.insert(l.attention.window);
  if (windows == std::set<std::int64_t>{0}) return nullptr;
  if (a.windows == Windows::any) return nullptr;
  if (a.windows == Windows::none) return "attention: {window: 0}";
  if (windows.size() == 1) return nullptr;
  if (a.windows == Windows::alike) return "one attention.window for all layers";
  windows.erase(0);
  return windows.size() == 1 ? nullptr : "one attention.window besides 0";
}

// Whether a layer has keys of attention that no architecture has: others than these.
bool has_own_attention(const config::ModelConfig& m) {
  const auto own = [](const config::LayerConfig& l) {
    const config::AttentionConfig& a = l.attention;
    config::AttentionConfig known;
    known.type = a.type, known.window = a.window, known.global_tokens = a.global_tokens;
    known.global_projections = a.global_projections, known.blocks = a.blocks;
    known.softcap = a.softcap, known.sinks = a.sinks, known.output_gate = a.output_gate;
    known.query_scalar = a.query_scalar, known.q_rank = a.q_rank, known.kv_rank = a.kv_rank;
    known.rope_size = a.rope_size, known.value_size = a.value_size;
    known.key_heads = a.key_heads, known.convolution = a.convolution;
    return !(a == known);
  };
  return std::ranges::any_of(m.stacks(),
                             [&](const auto& stack) { return std::ranges::any_of(stack, own); });
}

struct FeatureUse {
  Feature feature;
  bool (*used)(const config::ModelConfig& m);
  const char* without;
};
using M = const config::ModelConfig&;
constexpr FeatureUse kUses[] = {
    {Feature::gemma, [](M m) { return m.attention.softcap > 0; }, "attention: {softcap: 0}"},
    {Feature::gemma, [](M m) { return m.query_scalar() != m.d_head; },
     "attention: {query_scalar: auto}"},
    {Feature::gemma, [](M m) { return m.softcap > 0; }, "softcap: 0"},
    {Feature::norm_eps_outside, [](M m) { return m.norm_eps_outside; }, "norm_eps_outside: false"},
    {Feature::norm_plus_one, [](M m) { return m.norm_plus_one; }, "norm_plus_one: false"},
    {Feature::gemma, [](M m) { return m.scale_embeddings == config::ScaleEmbeddings::rounded; },
     "scale_embeddings: true"},
    {Feature::load_bias,
     [](M m) { return m.router_loss.has_bias() && m.layers_with_experts() > 0; },
     "experts: {balance: {type: loss}}"},
    {Feature::load_bias, [](M m) { return m.experts.groups > 1 && m.layers_with_experts() > 0; },
     "experts: {groups: 1}"},
    {Feature::output_gate, [](M m) { return m.attention.output_gate; },
     "attention: {output_gate: false}"},
    {Feature::global_tokens, [](M m) { return m.attention.global_tokens > 0; },
     "attention: {global_tokens: 0}"},
    {Feature::blocks, [](M m) { return m.attention.blocks.size > 0; },
     "attention: {blocks: {size: 0}}"},
    {Feature::own_attention, has_own_attention,
     "attention without keys of its own, such as prefix"},
    {Feature::sinks, [](M m) { return m.attention.sinks; }, "attention: {sinks: false}"},
    {Feature::clamped_gates, [](M m) { return m.activation == config::Activation::clamped_swiglu; },
     "activation: swiglu"},
    {Feature::router_bias, [](M m) { return m.experts.router_bias; },
     "experts: {router_bias: false}"},
    {Feature::expert_capacity, [](M m) { return m.experts.capacity > 0; },
     "experts: {capacity: 0}"},
    {Feature::partial_rotary,
     [](M m) { return m.position == config::Position::rope && m.rope.fraction != 1; },
     "rope: {fraction: 1}"},
    {Feature::sinusoid_offset,
     [](M m) { return m.position == config::Position::sinusoidal && m.position_offset > 0; },
     "position_offset: 0"},
    {Feature::tensor2tensor,
     [](M m) {
       return m.position == config::Position::sinusoidal &&
              m.sinusoid == config::Sinusoid::tensor2tensor;
     },
     "sinusoid: halves"},
    {Feature::longrope,
     [](M m) {
       return m.position == config::Position::rope &&
              m.rope.scaling.type == config::RopeScalingType::longrope;
     },
     "rope: {scaling: {type: yarn}}"},
};

std::string names() {
  std::string s;
  for (const Architecture& a : architectures())
    s += (s.empty() ? "" : &a == &architectures().back() ? " or " : ", ") + std::string(a.name);
  return s;
}

}  // namespace

std::string Architecture::current_name(std::string tensor) const {
  for (const auto& [old, now] :
       {std::pair<std::string_view, const char*>{"LayerNorm.gamma", "LayerNorm.weight"},
        {"LayerNorm.beta", "LayerNorm.bias"}})
    if (tensor.ends_with(old)) tensor.replace(tensor.size() - old.size(), old.size(), now);
  const auto complete = [&](std::string_view name) {
    return name.starts_with(base) ||
           std::ranges::any_of(heads, [&](const char* head) { return name.starts_with(head); });
  };
  if (tensor.starts_with(base))
    if (std::string rest = tensor.substr(std::string_view(base).size()); complete(rest))
      return rest;
  return complete(tensor) ? tensor : base + tensor;
}

std::string Architecture::written_name(const config::ModelConfig& model,
                                       const std::string& tensor) const {
  const std::string_view prefix = base;
  return model.embeds() && tensor.starts_with(prefix) ? tensor.substr(prefix.size()) : tensor;
}

std::vector<ExchangedTensor> Architecture::exchanged(const config::ModelConfig& model) const {
  Table table(model);
  tensors(table, model);
  if (labels) label_tensors(table, model, *labels);
  std::vector<ExchangedTensor> all = table.take();
  if (model.embeds())
    std::erase_if(all, [](const auto& t) { return t.parts.front().starts_with("head."); });
  return all;
}

std::string Architecture::class_of(const config::ModelConfig& model) const {
  if (labels && !model.labelled_heads().empty()) return label_class(model, *labels);
  const std::string name = class_name(model);
  if (!model.embeds()) return name;
  if (headless) return headless;
  return name.substr(0, std::min(name.find("For"), name.find("LMHead"))) + "Model";
}

bool Architecture::of_another_head(const config::ModelConfig& model,
                                   const std::string& tensor) const {
  return ((labels && !model.labelled_heads().empty()) || model.embeds()) &&
         std::ranges::any_of(heads, [&](const char* head) { return tensor.starts_with(head); });
}

std::string Architecture::original_in(const config::ModelConfig& model, const std::string& tensor,
                                      const Has& has) const {
  for (const std::vector<std::string>& names : tied(model))
    if (std::ranges::count(names, tensor) > 0)
      for (const std::string& name : names)
        if (name != tensor && has(name)) return name;
  return {};
}

const Architecture& architecture_of(const io::JsonNode& config) {
  const io::JsonNode type = config.at("model_type");
  for (const Architecture& a : architectures())
    if (type.string() == a.name) return a;
  type.fail("'" + type.string() + "' is not supported; expected " + names());
}

const Architecture& architecture_for(const config::ModelConfig& model, std::string_view preferred) {
  const Architecture* nearest = nullptr;
  std::vector<const char*> unmet;
  for (const Architecture& a : architectures()) {
    if (a.family != model.family) continue;
    std::vector<const char*> missing = a.needs(model).unmet;
    for (const FeatureUse& use : kUses)
      if (std::ranges::count(a.has, use.feature) == 0 && use.used(model))
        missing.push_back(use.without);
    if (model.position == config::Position::rope && model.rope.scaling.on() &&
        model.rope.scaling.type == config::RopeScalingType::ntk)
      missing.push_back("rope: {scaling: {type: yarn}}");
    if (a.first_norm && !model.attention_norm) missing.push_back("attention_norm: true");
    if (!alike_but_windows(a, model)) missing.push_back("layers that are all alike (layer_kinds)");
    if (const char* windows = unmet_windows(a, model)) missing.push_back(windows);
    if (model.layers_with_experts() > 0 && !a.has_experts) missing.push_back("experts: {count: 0}");
    if (model.attention.type != a.mixer)
      missing.push_back(a.mixer == std::string_view("latent") ? "attention: {type: latent}"
                                                              : "attention: {type: softmax}");
    if (!model.labelled_heads().empty()) {
      if (const char* heads = unmet_label_heads(model, a.labels)) missing.push_back(heads);
    } else if (!model.head_of_type("lm") && !model.embeds()) {
      missing.push_back("heads: [{type: lm}]");
    }
    if (nearest && missing.size() >= unmet.size() && !(missing.empty() && a.name == preferred))
      continue;
    nearest = &a, unmet = missing;
  }
  if (unmet.empty()) return *nearest;
  std::string changes;
  for (const char* change : unmet) changes += (changes.empty() ? "" : ", ") + std::string(change);
  throw Error(ExitCode::usage,
              "no architecture of Hugging Face transformers computes this model; the nearest, " +
                  std::string(nearest->name) + ", needs " + changes + " in section model");
}

bool output_is_tied(const io::JsonNode& config, bool otherwise, const Has& has,
                    const char* output) {
  return config.flag("tie_word_embeddings", otherwise || !has(output));
}

bool matches(std::string_view name, std::string_view pattern) {
  const auto digits = [&name] {
    const auto count = std::min(name.find_first_not_of("0123456789"), name.size());
    name.remove_prefix(count);
    return count > 0;
  };
  for (const char c : pattern) {
    if (c == '#' ? !digits() : !name.starts_with(c)) return false;
    if (c != '#') name.remove_prefix(1);
  }
  return name.empty();
}

Needs plain_attention(const config::ModelConfig& m) {
  return {{m.has_qkv_bias() == m.bias, "qkv_bias: auto"},
          {m.qk_norm == config::QkNorm::none, "qk_norm: false"}};
}

Needs plain_ffn(const config::ModelConfig& m) {
  return {{m.has_ffn_bias() == m.bias, "ffn_bias: auto"}};
}

Needs full_heads(const config::ModelConfig& m) {
  return {{m.n_kv_heads == m.n_heads, "n_kv_heads: n_heads"},
          {m.d_head * m.n_heads == m.d_model, "d_head: d_model / n_heads"}};
}

}  // namespace tfm::huggingface
