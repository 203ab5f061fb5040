#include <algorithm>

#include "huggingface/llama_like.h"

namespace tfm::huggingface {
namespace {

// Query t sees keys t - window + 1 .. t. Absent: 4096; null: no window, 0.
std::int64_t window(const io::JsonNode& c) {
  if (!has_member(c, "sliding_window")) return 4096;
  const auto given = c.find("sliding_window");
  return given ? given->integer(1, std::int64_t{1} << 31) : 0;
}

config::ModelConfig read(const io::JsonNode& c) {
  config::ModelConfig m = llama_like::read(c, {32000, 8, 14336, 131072});
  // In sequences of up to the window, every query sees all keys before it.
  if (const std::int64_t keys = window(c); keys > 0) m.max_seq_len = std::min(m.max_seq_len, keys);
  return m;
}

// A model of sequences of up to its window keeps the window, and what it had beyond that.
void write(Json& j, const config::ModelConfig& m) {
  const char *window = "sliding_window", *positions = "max_position_embeddings";
  const auto length = static_cast<double>(m.max_seq_len),
             keys = number_in(j, window).value_or(contains(j, window) ? 0 : 4096);
  const auto before = number_in(j, positions);
  llama_like::write(j, m);
  if (before && *before > length && keys == length)
    set(j, {{positions, static_cast<std::int64_t>(*before)}});
  if (keys < length) set(j, {{window, nullptr}});
}

Needs needs(const config::ModelConfig& m) {
  return llama_like::needs(m) + Needs{{!m.bias, "bias: false"}} + plain_attention(m) + plain_ffn(m);
}

}  // namespace

Architecture mistral() {
  Architecture a = llama_like::architecture(
      "mistral", [](const config::ModelConfig&) { return std::string("MistralForCausalLM"); }, read,
      write, needs);
  a.window = window;
  return a;
}

}  // namespace tfm::huggingface
