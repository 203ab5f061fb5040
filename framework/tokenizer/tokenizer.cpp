#include "tokenizer/tokenizer.h"

#include <filesystem>
#include <numeric>

#include "core/error.h"
#include "tokenizer/marian.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/tokenizer_json.h"

namespace tfm::tokenizer {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  std::vector<std::int32_t> encode(std::string_view text) const override {
    const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
    return {bytes, bytes + text.size()};
  }
  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    text.reserve(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (!knows(ids[i]))
        throw Error(ExitCode::input, "id " + std::to_string(ids[i]) + " at position " +
                                         std::to_string(i) +
                                         ": expected 0 to 255, or 256 to 259 for specials");
      if (ids[i] < 256) text.push_back(static_cast<char>(ids[i]));
    }
    return text;
  }
  bool knows(std::int32_t id) const override { return id >= 0 && id <= ByteSpecials::mask; }
  std::int64_t vocab_size() const override { return 256; }
  std::optional<std::int32_t> end_of_document() const override { return std::nullopt; }
  SpecialIds special_ids() const override {
    return {.pad = ByteSpecials::padding,
            .begin = ByteSpecials::begin,
            .end = ByteSpecials::end,
            .mask = ByteSpecials::mask};
  }
  std::vector<std::int32_t> sentinel_ids() const override {
    std::vector<std::int32_t> ids(ByteSpecials::sentinels);
    std::iota(ids.begin(), ids.end(), ByteSpecials::first_sentinel);
    return ids;
  }
  std::size_t safe_cut(std::string_view text) const override { return text.size(); }
};

}  // namespace

bool is_bytes(const std::string& spec) { return spec == "bytes"; }

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& spec) {
  namespace fs = std::filesystem;
  static const std::string use =
      "; expected `bytes`, a tokenizer.json, a SentencePiece .model, or a directory with "
      "tokenizer.json, with source.spm, target.spm and vocab.json, or with vocab.json and "
      "merges.txt";
  if (is_bytes(spec)) return std::make_unique<ByteTokenizer>();
  std::error_code ignored;
  const fs::path path(spec);
  if (fs::is_directory(path, ignored)) {
    const fs::path vocab = path / "vocab.json", merges = path / "merges.txt",
                   whole = path / "tokenizer.json";
    if (fs::exists(whole, ignored)) return read_tokenizer_json(whole.string());
    const bool has_vocab = fs::exists(vocab, ignored);
    if (has_vocab && fs::exists(path / "source.spm", ignored)) return read_marian(spec);
    if (has_vocab && fs::exists(merges, ignored))
      return read_gpt2_files(vocab.string(), merges.string());
    throw Error(ExitCode::input, "tokenizer " + spec + ": the directory has no " +
                                     (has_vocab ? "merges.txt" : "vocab.json") + use);
  }
  if (!fs::exists(path, ignored))
    throw Error(ExitCode::input, "tokenizer " + spec + ": no such file or directory" + use);
  if (path.extension() == ".json") return read_tokenizer_json(spec);
  if (path.extension() == ".model") return read_sentencepiece(spec);
  throw Error(ExitCode::input, "tokenizer " + spec + ": unsupported file type" + use);
}

}  // namespace tfm::tokenizer
