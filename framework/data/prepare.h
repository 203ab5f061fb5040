#pragma once
// Converts text files to one token file, and checks token files.
#include <cstdint>
#include <string>
#include <vector>

#include "config/options.h"
#include "data/token_file.h"

namespace tfm::data {

struct PrepareOptions {
  std::vector<std::string> inputs;  // as encode_file() reads them
  std::string tokenizer, output;    // as load_tokenizer() and make_token_writer() take them
  TokenFormat format = TokenFormat::llmc;
  // Appends the tokenizer's document_end() to each document; Error(usage) if there is none.
  bool append_eod = false;
  config::AddBegin add_begin = config::AddBegin::automatic;  // see document_begin()
  std::string field = "text";
};
struct Prepared {
  std::int64_t tokens = 0, documents = 0;
  std::int64_t empty = 0;  // documents without text, which are left out
};
Prepared prepare_tokens(const PrepareOptions& options);

// Reads every id and returns the largest, -1 for an empty file. Error(input) for an id of
// vocab_size or more.
std::int32_t check_all_ids(const TokenFile& file, std::int64_t vocab_size);

}  // namespace tfm::data
