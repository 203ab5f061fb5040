#include "tokenizer/marian.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "core/error.h"
#include "text/unicode.h"
#include "tokenizer/bpe_vocab.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/tokenizer_config.h"

namespace tfm::tokenizer {
namespace {

class MarianTokenizer final : public Tokenizer {
 public:
  // `target`: the target side's tokenizer; null: this is the target side.
  MarianTokenizer(PipelineParts side, const VocabEntries& vocabulary,
                  std::unique_ptr<MarianTokenizer> target)
      : side_(std::move(side)), target_(std::move(target)), special_(side_.special_ids()) {
    for (const auto& [token, id] : vocabulary)
      if (token.starts_with(">>")) codes_.emplace(token, id);
  }
  std::vector<std::int32_t> encode(std::string_view text) const override {
    return encode(text, false);
  }
  std::vector<std::int32_t> encode_with_specials(std::string_view text) const override {
    return encode(text, true);
  }
  std::string decode(std::span<const std::int32_t> ids) const override {
    if (target_) return target_->decode(ids);
    std::vector<std::int32_t> kept(ids.begin(), ids.end());
    std::erase_if(kept, [&](std::int32_t id) {
      return id == special_.end || id == special_.pad || id == special_.unknown;
    });
    return std::string(text::stripped(text::well_formed(side_.decode(kept))));
  }
  bool knows(std::int32_t id) const override {
    return target_ ? target_->knows(id) : side_.knows(id);
  }
  std::string token_text(std::int32_t id) const override { return side_.token_text(id); }
  bool is_added(std::int32_t id) const override { return side_.is_added(id); }
  std::int64_t vocab_size() const override { return side_.vocab_size(); }
  std::optional<std::int32_t> end_of_document() const override { return special_.end; }
  SpecialIds special_ids() const override { return special_; }
  const Tokenizer& target() const override { return target_ ? *target_ : *this; }
  std::size_t safe_cut(std::string_view text) const override {
    return text.starts_with(">>") ? 0 : side_.safe_cut(text);
  }

 private:
  std::vector<std::int32_t> encode(std::string_view text, bool specials) const {
    std::vector<std::int32_t> ids;
    if (const auto end = text.find("<<"); text.starts_with(">>") && end != text.npos) {
      const auto code = codes_.find(std::string(text.substr(0, end + 2)));
      ids.push_back(code == codes_.end() ? *special_.unknown : code->second);
      text.remove_prefix(end + 2);
    }
    const std::vector<std::int32_t> rest =
        specials ? side_.encode_with_specials(text) : side_.encode(text);
    ids.insert(ids.end(), rest.begin(), rest.end());
    return ids;
  }

  PipelineTokenizer side_;
  std::unique_ptr<MarianTokenizer> target_;
  SpecialIds special_;
  std::unordered_map<std::string, std::int32_t> codes_;
};

// The vocabulary of a side, and its special tokens: </s>, <unk>, <pad>.
struct SideVocabulary {
  VocabEntries entries;
  std::vector<AddedToken> special;
  explicit SideVocabulary(const std::string& path) : entries(read_vocab_json(path)) {
    for (const char* token : {"</s>", "<unk>", "<pad>"}) {
      const auto found = std::ranges::find(entries, token, &VocabEntries::value_type::first);
      if (found == entries.end())
        throw Error(ExitCode::input, path + ": no entry " + token +
                                         "; expected </s>, <unk> and <pad>, as in MarianMT");
      special.push_back({.content = token, .id = found->second, .normalized = false});
    }
  }
};

}  // namespace

std::unique_ptr<Tokenizer> read_marian(const std::string& folder) {
  const nlohmann::json tree = read_tokenizer_config(folder);
  const bool two =
      io::JsonNode(tree, folder + tokenizer_config_file).flag("separate_vocabs", false);
  const SideVocabulary source(folder + "/vocab.json");
  const auto side = [&](const char* file, const SideVocabulary& vocabulary,
                        std::unique_ptr<MarianTokenizer> target) {
    PipelineParts parts = read_sentencepiece(folder + file, vocabulary.entries);
    parts.added = vocabulary.special;
    parts.after = {vocabulary.special[0].id};
    return std::make_unique<MarianTokenizer>(std::move(parts), vocabulary.entries,
                                             std::move(target));
  };
  auto target = two ? side("/target.spm", SideVocabulary(folder + "/target_vocab.json"), nullptr)
                    : side("/target.spm", source, nullptr);
  return side("/source.spm", source, std::move(target));
}

}  // namespace tfm::tokenizer
