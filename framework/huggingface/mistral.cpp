#include "huggingface/llama_like.h"

namespace tfm::huggingface {
namespace {

std::int64_t window(const io::JsonNode& c) {
  if (!has_member(c, "sliding_window")) return 4096;
  return whole(c, "sliding_window", 0);
}

config::ModelConfig read(const io::JsonNode& c) {
  config::ModelConfig m = llama_like::read(c, {32000, 8, 14336, 131072});
  // Query t sees keys t - window + 1 .. t.
  const std::string expected =
      "; expected null, or at least max_position_embeddings " + std::to_string(m.max_seq_len);
  if (!has_member(c, "sliding_window") && m.max_seq_len > 4096)
    c.fail("sliding_window is missing, so that transformers uses 4096" + expected);
  if (const auto given = c.find("sliding_window"))
    if (const auto keys = given->integer(0, std::int64_t{1} << 31); keys < m.max_seq_len)
      given->fail("a sliding window of " + std::to_string(keys) + " tokens is not supported" +
                  expected);
  return m;
}

void write(Json& j, const config::ModelConfig& m) {
  llama_like::write(j, m);
  const auto keys = number_in(j, "sliding_window");  // absent means 4096
  if (!keys || *keys < static_cast<double>(m.max_seq_len)) set(j, {{"sliding_window", nullptr}});
}

Needs needs(const config::ModelConfig& m) {
  return llama_like::needs(m) + Needs{{!m.bias, "bias: false"}} + plain_attention(m);
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
