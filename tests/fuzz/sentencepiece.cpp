// A SentencePiece model.
#include "tokenizer.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tfm;
  return fuzz::survives([&] {
    fuzz::use(*tokenizer::load_tokenizer(fuzz::put("x.model", fuzz::text_of(data, size))));
  });
}
