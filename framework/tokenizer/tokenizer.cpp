#include "tokenizer/tokenizer.h"

#include <filesystem>
#include <numeric>

#include "core/error.h"
#include "tokenizer/marian.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/tokenizer_class.h"
#include "tokenizer/tokenizer_config.h"
#include "tokenizer/tokenizer_json.h"

namespace tfm::tokenizer {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  std::vector<std::int32_t> encode_with_cuts(std::string_view text,
                                             std::span<const std::size_t> offsets,
                                             std::vector<Cut>& cuts) const override {
    for (const std::size_t offset : offsets) cuts.push_back({offset, false});
    return encode(text);
  }
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

// Of a source side and a target side that know nothing of each other.
class TwoSides final : public Tokenizer {
 public:
  TwoSides(std::unique_ptr<Tokenizer> source, std::unique_ptr<Tokenizer> target)
      : source_(std::move(source)), target_(std::move(target)) {}
  std::vector<std::int32_t> encode(std::string_view text) const override {
    return source_->encode(text);
  }
  std::vector<std::int32_t> encode_with_specials(std::string_view text) const override {
    return source_->encode_with_specials(text);
  }
  std::vector<std::int32_t> encode(std::string_view text, const BpeDropout& d) const override {
    return source_->encode(text, d);
  }
  bool drops_merges() const override { return source_->drops_merges(); }
  std::string decode(std::span<const std::int32_t> ids) const override {
    return target_->decode(ids);
  }
  bool knows(std::int32_t id) const override { return target_->knows(id); }
  std::string token_text(std::int32_t id) const override { return source_->token_text(id); }
  std::int64_t vocab_size() const override { return source_->vocab_size(); }
  std::optional<std::int32_t> end_of_document() const override {
    return source_->end_of_document();
  }
  SpecialIds special_ids() const override { return source_->special_ids(); }
  const Tokenizer& target() const override { return target_->target(); }
  const Tokenizer& source() const override { return source_->source(); }
  std::size_t safe_cut(std::string_view text) const override { return source_->safe_cut(text); }

 private:
  std::unique_ptr<Tokenizer> source_, target_;
};

// A file of a tokenizer's directory, another or "", and what reads them; of several the first.
struct Layout {
  std::string file, other;
  std::unique_ptr<Tokenizer> (*read)(const std::string& folder);
};
using Folder = const std::string&;
const Layout layouts[] = {
    {"/tokenizer.json", "", [](Folder f) { return read_tokenizer_json(f + "/tokenizer.json"); }},
    {"/vocab.json", "/source.spm", read_marian},
    {"/vocab.json", "/merges.txt",
     [](Folder f) { return read_gpt2_files(f + "/vocab.json", f + "/merges.txt"); }},
    {"/spiece.model", "", read_t5},
    {"/tokenizer.model", "", read_llama},
    {"/sentencepiece.bpe.model", "", refuse_fairseq}};
const Layout byt5{tokenizer_config_file, "", read_byt5};

const Layout* layout_of(const std::string& folder) {
  std::error_code ignored;
  for (const Layout& layout : layouts)
    if (std::filesystem::exists(folder + layout.file, ignored) &&
        std::filesystem::exists(folder + layout.other, ignored))
      return &layout;
  return is_byt5(folder) ? &byt5 : nullptr;
}

}  // namespace

std::vector<std::int32_t> Tokenizer::encode_with_cuts(std::string_view,
                                                      std::span<const std::size_t>,
                                                      std::vector<Cut>&) const {
  throw Error(ExitCode::input,
              "this tokenizer cannot tell which tokens a part of a text has; expected one of "
              "tokenizer.json");
}

bool is_bytes(const std::string& spec) { return spec == "bytes"; }

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& spec, const std::string& source) {
  if (!source.empty())
    return std::make_unique<TwoSides>(load_tokenizer(source), load_tokenizer(spec));
  namespace fs = std::filesystem;
  static const std::string use =
      "; expected `bytes`, a tokenizer.json, a SentencePiece .model, or a directory with "
      "tokenizer.json, with source.spm, target.spm and vocab.json, with vocab.json and merges.txt, "
      "with spiece.model (T5) or tokenizer.model (Llama), or with a tokenizer_config.json that "
      "says ByT5Tokenizer";
  if (is_bytes(spec)) return std::make_unique<ByteTokenizer>();
  std::error_code ignored;
  const fs::path path(spec);
  if (fs::is_directory(path, ignored)) {
    if (const Layout* layout = layout_of(spec)) return layout->read(spec);
    const bool has_vocab = fs::exists(path / "vocab.json", ignored);
    throw Error(ExitCode::input, "tokenizer " + spec + ": the directory has no " +
                                     (has_vocab ? "merges.txt" : "tokenizer.json or vocab.json") +
                                     use);
  }
  if (!fs::exists(path, ignored))
    throw Error(ExitCode::input, "tokenizer " + spec + ": no such file or directory" + use);
  if (path.extension() == ".json") return read_tokenizer_json(spec);
  if (path.extension() == ".model") return read_sentencepiece(spec);
  throw Error(ExitCode::input, "tokenizer " + spec + ": unsupported file type" + use);
}

}  // namespace tfm::tokenizer
