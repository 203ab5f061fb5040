// A YAML configuration, dumped and read again.
#include "config/config.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tfm;
  return fuzz::survives([&] {
    const config::Config config =
        config::load_config(fuzz::put("x.yaml", fuzz::text_of(data, size)), {});
    const std::string text = config::dump_config(config);
    if (!(config::parse_config(text, "dump", {}) == config))
      std::fputs(text.c_str(), stderr), std::abort();
    config::Config resolved = config;
    config::resolve_for_ranks(resolved, 4);
  });
}
