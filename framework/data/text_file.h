#pragma once
// Text files to token ids, read in pieces.
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "data/tokenizer.h"

namespace tfm {

// Gets the ids of the next piece of a document; last: the document ends here. Documents without text are left out.
using TokenSink = std::function<void(std::span<const std::int32_t> ids, bool last)>;

// A .jsonl file: each line that is not blank is an object whose string `field` is a document. Any other file is one document,
// its bytes as they are. Memory does not grow with the file. Throws Error(input) with file and line; also for a line, or a
// stretch of text without a place to cut it, of more than 256 MiB.
void encode_file(const std::string& path, const std::string& field, const Tokenizer& tokenizer, const TokenSink& sink);

}  // namespace tfm
