// GPT-2's vocab.json up to a zero byte, then merges.txt.
#include "tokenizer.h"
#include "tokenizer/tokenizer_json.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tfm;
  const std::string_view both = fuzz::text_of(data, size);
  const std::size_t end = std::min(both.find('\0'), both.size());
  return fuzz::survives([&] {
    const std::string vocab = fuzz::put("vocab.json", both.substr(0, end)),
                      merges = fuzz::put("merges.txt", both.substr(std::min(end + 1, both.size())));
    fuzz::use(*tokenizer::read_gpt2_files(vocab, merges));
  });
}
