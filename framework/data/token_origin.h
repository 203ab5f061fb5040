#pragma once
// What made the ids of a token file: FILE.bin.json, which `tfm-data prepare` writes beside
// FILE.bin.
#include <cstdint>
#include <optional>
#include <string>

#include "data/token_file.h"
#include "tokenizer/tokenizer.h"

namespace tfm::data {

struct TokenOrigin {
  std::string tokenizer;    // as it was named then
  std::string fingerprint;  // of that tokenizer
  std::int64_t tokens = 0;  // of the file
  std::int64_t documents = 0;
  std::optional<std::int32_t> document_end;  // the id that was appended to each document
};

std::string origin_path(const std::string& token_file);  // of FILE.bin
// Replaces what is there, atomically.
void write_origin(const std::string& token_file, const TokenOrigin& origin);
// nullopt if nothing was written, or it was for another number of ids. Error(input) if it cannot be
// read.
std::optional<TokenOrigin> read_origin(const TokenFile& file);

// XXH3-128 of the text of every id and of the special ids, by which tokenizers are told apart
// whose ids mean something else.
std::string fingerprint(const tokenizer::Tokenizer& tokenizer);
// The same of what may be a tokenizer for each side of translations.
std::string fingerprint_of_sides(const tokenizer::Tokenizer& tokenizer);
// Error(input) if the ids of a token file were made by another tokenizer than `spec`, whose
// fingerprint is `of`.
void check_origin(const TokenFile& file, const std::optional<TokenOrigin>& origin,
                  const std::string& of, const std::string& spec);

}  // namespace tfm::data
