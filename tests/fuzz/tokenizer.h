#pragma once
#include "fuzz.h"
#include "tokenizer/tokenizer.h"

namespace tfm::fuzz {

inline void use(const tokenizer::Tokenizer& tokenizer) {
  tokenizer.special_ids();
  tokenizer.sentinel_ids();
  tokenizer.end_of_document();
  for (std::string_view text :
       {"", " ", "The  quick brown fox's 12,345 \n\t jumps",
        "na\xC3\xAFve \xE4\xB8\xAD\xE6\x96\x87 \xF0\x9F\x98\x80\xE2\x96\x81 e\xCC\x81",
        "\xFF\xC3 <s> </s> [MASK] <unk><extra_id_0> <0x41>",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}) {
    tokenizer.decode(tokenizer.encode(text));
    tokenizer.decode(tokenizer.encode_with_specials(text));
    if (tokenizer.safe_cut(text) > text.size()) std::abort();
    for (std::int32_t id : tokenizer.encode(text))
      if (id < 0 || id >= tokenizer.vocab_size()) std::abort();
  }
  for (std::int64_t id = 0; id < std::min<std::int64_t>(tokenizer.vocab_size(), 600); ++id) {
    const std::int32_t one[] = {static_cast<std::int32_t>(id)};
    try {
      tokenizer.decode(one);
    } catch (const Error& e) {
      if (e.code() != ExitCode::input) throw;  // ids may have gaps
    }
  }
}

}  // namespace tfm::fuzz
