// A chat template, parsed and rendered.
#include "fuzz.h"
#include "text/jinja/template.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tfm;
  static const text::jinja::Value variables = text::jinja::parse_json(
      R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "hé <|x|>"},
          {"role": "assistant", "content": "a", "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, 2.5, null]}}}]}],
          "tools": null, "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>"})",
      "variables");
  return fuzz::survives([&] {
    const text::jinja::Template t(fuzz::text_of(data, size), "t");
    t.render(*variables.dict(), std::time_t{0});
  });
}
