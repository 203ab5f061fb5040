// A tokenizer.json.
#include "tokenizer.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tfm;
  return fuzz::survives([&] {
    fuzz::use(*tokenizer::load_tokenizer(fuzz::put("tokenizer.json", fuzz::text_of(data, size))));
  });
}
