#pragma once
// Token ids of the documents of a text file.
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "tokenizer/tokenizer.h"

namespace tfm::data {

// As text::read_documents(), encoded.
using TokenSink = std::function<void(std::span<const std::int32_t> ids, bool last)>;
std::int64_t encode_file(const std::string& path, const std::string& field,
                         const tokenizer::Tokenizer& tokenizer, const TokenSink& sink);

}  // namespace tfm::data
