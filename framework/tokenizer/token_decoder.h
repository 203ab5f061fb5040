#pragma once
// Decoders of tokenizer.json: tokens back to a text.
#include <memory>
#include <string>
#include <vector>

#include "io/json.h"

namespace tfm::tokenizer {

class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  // Changes the tokens of a text; the text is what they are in a row.
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

// Sequence, ByteLevel, WordPiece, Metaspace, ByteFallback, Fuse, Strip, Replace and BPEDecoder.
// Throws Error(input) for any other. Bytes that are no UTF-8 stay as they are, where the library
// puts U+FFFD.
std::unique_ptr<TokenDecoder> read_decoder(const io::JsonNode& node);

// The ByteLevel decoder: tokens in GPT-2's byte alphabet to bytes.
std::unique_ptr<TokenDecoder> byte_level_decoder();

}  // namespace tfm::tokenizer
