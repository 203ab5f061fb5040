#pragma once
// Trains a byte-level BPE with GPT-2's pattern.
#include <cstdint>
#include <string>
#include <vector>

namespace tfm::tokenizer {

struct TrainTokenizerOptions {
  std::vector<std::string> inputs;    // as encode_file() reads them
  std::string output;                 // tokenizer.json
  std::int64_t vocab_size = 0;        // special tokens, 256 bytes and merges together
  std::vector<std::string> specials;  // their ids come first
  std::string field = "text";
};

// Starts from the bytes and repeatedly merges the most frequent adjacent pair; of equally frequent
// pairs the one with the lower left, then right id. The same text gives the same file. Bytes that
// are not UTF-8 are not counted. Returns the size of the vocabulary, which is smaller than asked
// for if the text runs out of pairs. Error(usage) for sizes that do not fit, Error(input) for
// files.
std::int64_t train_tokenizer(const TrainTokenizerOptions& options);

}  // namespace tfm::tokenizer
