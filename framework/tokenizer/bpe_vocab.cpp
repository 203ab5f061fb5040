#include "tokenizer/bpe_vocab.h"

#include <nlohmann/json.hpp>
#include <unordered_set>

#include "core/error.h"
#include "core/strings.h"
#include "core/utf8.h"
#include "io/file.h"

namespace tfm::tokenizer {
namespace {

using Json = nlohmann::json;
constexpr std::size_t max_file_bytes = std::size_t{256} << 20;
constexpr std::uint64_t max_id = (1u << 24) - 1;

bool stands_for_itself(unsigned byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

class VocabReader final : public nlohmann::json_sax<Json> {
 public:
  explicit VocabReader(const std::string& path) : path_(path) {}
  std::vector<std::pair<std::string, std::int32_t>> entries;

  bool start_object(std::size_t) override {
    if (inside_) refuse("an object");
    return inside_ = true;
  }
  bool key(string_t& name) override {
    if (!tokens_.insert(name).second)
      throw Error(ExitCode::input, path_ + ": entry " + in_quotes(name) + " appears twice");
    key_ = name;
    return true;
  }
  bool number_unsigned(number_unsigned_t id) override {
    if (!inside_ || id > max_id) refuse(std::to_string(id));
    if (!ids_.insert(id).second)
      throw Error(ExitCode::input, path_ + ": entry " + in_quotes(key_) + ": id " +
                                       std::to_string(id) + " already belongs to another token");
    entries.emplace_back(key_, static_cast<std::int32_t>(id));
    return true;
  }
  bool number_integer(number_integer_t id) override { refuse(std::to_string(id)); }
  bool number_float(number_float_t, const string_t& text) override { refuse(text); }
  bool null() override { refuse("null"); }
  bool boolean(bool) override { refuse("a boolean"); }
  bool string(string_t&) override { refuse("a string"); }
  bool binary(binary_t&) override { refuse("binary data"); }
  bool start_array(std::size_t) override { refuse("an array"); }
  bool end_array() override { return true; }
  bool end_object() override { return true; }
  bool parse_error(std::size_t byte, const std::string&, const Json::exception& e) override {
    throw Error(ExitCode::input, path_ + ": byte " + std::to_string(byte) +
                                     ": invalid JSON: " + shorten(e.what(), 200));
  }

 private:
  [[noreturn]] void refuse(const std::string& got) const {
    if (!inside_)
      throw Error(ExitCode::input, path_ + ": expected an object from token to id, got " + got);
    throw Error(ExitCode::input, path_ + ": entry " + in_quotes(key_) +
                                     ": expected an id from 0 to " + std::to_string(max_id) +
                                     ", got " + got);
  }

  const std::string& path_;
  std::unordered_set<std::string> tokens_;
  std::unordered_set<std::uint64_t> ids_;
  std::string key_;
  bool inside_ = false;
};

}  // namespace

const std::array<std::string, 256>& byte_alphabet() {
  static const std::array<std::string, 256> alphabet = [] {
    std::array<std::string, 256> a;
    std::uint32_t next = 256;
    for (unsigned byte = 0; byte < 256; ++byte)
      a[byte] = utf8_of(stands_for_itself(byte) ? byte : next++);
    return a;
  }();
  return alphabet;
}

std::optional<std::string> alphabet_bytes(std::string_view token) {
  static const std::array<std::optional<unsigned char>, 256 + 68> byte_of = [] {
    std::array<std::optional<unsigned char>, 256 + 68> map;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const std::string& symbol = byte_alphabet()[byte];
      map[utf8_code_point(symbol, symbol.size())] = static_cast<unsigned char>(byte);
    }
    return map;
  }();
  std::string bytes;
  for (std::size_t at = 0; at < token.size();) {
    const std::size_t length = utf8_length(token.substr(at));
    const std::uint32_t c = length ? utf8_code_point(token.substr(at), length) : ~0u;
    if (c >= byte_of.size() || !byte_of[c]) return std::nullopt;
    bytes.push_back(static_cast<char>(*byte_of[c]));
    at += length;
  }
  return bytes;
}

std::vector<std::pair<std::string, std::int32_t>> read_vocab_json(const std::string& path) {
  const std::string text = io::read_whole_file(path, max_file_bytes);
  VocabReader reader(path);
  Json::sax_parse(text, &reader);
  return std::move(reader.entries);
}

std::vector<MergeLine> read_merges_txt(const std::string& path) {
  const std::string text = io::read_whole_file(path, max_file_bytes);
  std::vector<MergeLine> merges;
  std::int64_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line(text.data() + at, end - at);
    at = end + 1;
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("#version") || (line.empty() && at >= text.size())) continue;
    const std::size_t space = line.find(' ');
    if (space == line.npos || space == 0 || space + 1 == line.size() ||
        line.find(' ', space + 1) != line.npos)
      throw Error(ExitCode::input, path + ":" + std::to_string(number) +
                                       ": expected two symbols with one space between, got " +
                                       in_quotes(std::string(line)));
    merges.push_back(
        {std::string(line.substr(0, space)), std::string(line.substr(space + 1)), number});
  }
  return merges;
}

}  // namespace tfm::tokenizer
