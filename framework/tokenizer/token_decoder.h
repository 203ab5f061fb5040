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
  // Changes the tokens of a text in place; the text is their concatenation.
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

// Reads Sequence, ByteLevel, WordPiece, Metaspace, ByteFallback, Fuse, Strip, Replace and
// BPEDecoder. Error(input) for any other. Bytes that are not UTF-8 stay as they are, where the
// library substitutes U+FFFD.
std::unique_ptr<TokenDecoder> read_decoder(const io::JsonNode& node);

// The ByteLevel decoder: tokens in GPT-2's byte alphabet to bytes.
std::unique_ptr<TokenDecoder> byte_level_decoder();

}  // namespace tfm::tokenizer
