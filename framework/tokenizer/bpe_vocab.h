#pragma once
// The files of a byte-level BPE vocabulary and the alphabet they are written in.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tfm::tokenizer {

// The printable character, as UTF-8, that stands for each byte: printable Latin-1 stands for
// itself, the other 68 bytes are U+0100 and up, in order.
const std::array<std::string, 256>& byte_alphabet();

// The bytes that a token's characters stand for; empty where one is not of the alphabet.
std::optional<std::string> alphabet_bytes(std::string_view token);

// The entries of vocab.json in the file's order: token and id. Throws Error(input) for broken JSON,
// a value that is not an id below 2^24, a token or id that comes twice, and for an empty
// vocabulary.
std::vector<std::pair<std::string, std::int32_t>> read_vocab_json(const std::string& path);

// The pairs of merges.txt with their line number. Throws Error(input) for a line that is not two
// symbols with a space between.
struct MergeLine {
  std::string left, right;
  std::int64_t line;
};
std::vector<MergeLine> read_merges_txt(const std::string& path);

}  // namespace tfm::tokenizer
