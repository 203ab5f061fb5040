#pragma once
// Encodes the documents of a text file.
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "tokenizer/tokenizer.h"

namespace tfm::data {

// Like text::read_documents(), with each piece of a document encoded.
using TokenSink = std::function<void(std::span<const std::int32_t> ids, bool last)>;
std::int64_t encode_file(const std::string& path, const std::string& field,
                         const tokenizer::Tokenizer& tokenizer, const TokenSink& sink);

}  // namespace tfm::data
