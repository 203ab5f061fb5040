// A YAML configuration, dumped and read again.
#include "fuzz.h"
#include "train/config.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tfm;
  return fuzz::survives([&] {
    const Config config = load_config(fuzz::put("x.yaml", fuzz::text_of(data, size)), {});
    const std::string text = dump_config(config);
    if (!(parse_config(text, "dump", {}) == config)) std::fputs(text.c_str(), stderr), std::abort();
    Config resolved = config;
    resolve_for_ranks(resolved, 4);
  });
}
