#pragma once
// The files of a byte-level BPE vocabulary, and the alphabet that they are written in.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tfm::tokenizer {

// The printable character, as UTF-8, that stands for each byte: printable Latin-1 characters stand
// for themselves; the other 68 bytes are U+0100 and up, in order.
const std::array<std::string, 256>& byte_alphabet();

// The bytes that the characters of `token` stand for; nullopt if one is not in the alphabet.
std::optional<std::string> alphabet_bytes(std::string_view token);

// The entries of vocab.json in the file's order: token and id. Error(input) for broken JSON, a
// value that is not an id below 2^24, a duplicate token or id, and an empty vocabulary.
std::vector<std::pair<std::string, std::int32_t>> read_vocab_json(const std::string& path);

// The pairs of merges.txt with their line numbers. Error(input) for a line that is not two symbols
// separated by a space.
struct MergeLine {
  std::string left, right;
  std::int64_t line;
};
std::vector<MergeLine> read_merges_txt(const std::string& path);

}  // namespace tfm::tokenizer
