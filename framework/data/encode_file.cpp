#include "data/encode_file.h"

#include "text/documents.h"

namespace tfm::data {

std::int64_t encode_file(const std::string& path, const std::string& field,
                         const tokenizer::Tokenizer& tokenizer, const TokenSink& sink) {
  return text::read_documents(
      path, field, [&](std::string_view text) { return tokenizer.safe_cut(text); },
      [&](std::string_view text, bool last) { sink(tokenizer.encode(text), last); });
}

}  // namespace tfm::data
