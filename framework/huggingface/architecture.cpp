#include "huggingface/architecture.h"

#include <algorithm>

#include "core/error.h"

namespace tfm::huggingface {

Architecture gpt2(), llama(), mistral(), qwen2(), qwen3(), bert(), roberta(), t5(), bart(),
    marian();

namespace {

// Where several compute the same, an export without a chosen architecture writes the first.
const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> all{gpt2(), llama(),   mistral(), qwen2(), qwen3(),
                                             bert(), roberta(), t5(),      bart(),  marian()};
  return all;
}

std::string names() {
  std::string s;
  for (const Architecture& a : architectures())
    s += (s.empty() ? "" : &a == &architectures().back() ? " or " : ", ") + std::string(a.name);
  return s;
}

}  // namespace

const Architecture& architecture_of(const io::JsonNode& config) {
  const io::JsonNode type = config.at("model_type");
  for (const Architecture& a : architectures())
    if (type.string() == a.name) return a;
  type.fail("'" + type.string() + "' is not supported; expected " + names());
}

const Architecture& architecture_for(const config::ModelConfig& model, std::string_view preferred) {
  const Architecture* found = nullptr;
  for (const Architecture& a : architectures())
    if (a.computes(model) && (!found || a.name == preferred)) found = &a;
  if (!found)
    throw Error(
        ExitCode::usage,
        "no architecture of Hugging Face transformers computes this model; expected the options of "
        "one of " +
            names() +
            " (marian: post-norm layernorm with eps 1e-5, position sinusoidal with sinusoid "
            "halves, biases)");
  return *found;
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

bool attention_is_plain(const config::ModelConfig& m) {
  return m.has_qkv_bias() == m.bias && !m.qk_norm;
}

bool heads_are_full(const config::ModelConfig& m) {
  return m.n_kv_heads == m.n_heads && m.d_head * m.n_heads == m.d_model;
}

}  // namespace tfm::huggingface
