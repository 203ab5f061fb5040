#include "tokenizer/tokenizer_class.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/bpe_vocab.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/tokenizer_config.h"

namespace tfm::tokenizer {
namespace {

constexpr std::int64_t max_extra_ids = 1 << 16;

std::string sentinel(std::int64_t i) { return "<extra_id_" + std::to_string(i) + ">"; }

[[noreturn]] void refuse(const std::string& folder, const std::string& what) {
  throw Error(ExitCode::input, "tokenizer " + folder + ": " + what +
                                   "; expected a tokenizer.json beside it: load the directory with "
                                   "transformers' AutoTokenizer and save_pretrained() it");
}

void expect_class(const std::string& folder, const io::JsonNode& config, const std::string& file,
                  const std::string& expected) {
  const std::string name = config.text("tokenizer_class", expected);
  if (name != expected && name != expected + "Fast")
    refuse(folder, file + " of " + name + " is not supported, only of " + expected);
}

// The parts of a SentencePiece model whose control and unknown pieces are matched in a text.
PipelineParts read_pieces(const std::string& path) {
  PipelineParts parts = read_sentencepiece(path, {});
  for (const auto& [token, id] : parts.entries)
    if (token == "<s>" || token == "</s>" || token == "<pad>" || id == parts.unknown)
      parts.added.push_back({.content = token, .id = id, .normalized = false});
  return parts;
}

std::vector<std::int32_t> id_of(const PipelineParts& parts, const io::JsonNode& config,
                                const std::string& member, const std::string& usual) {
  const auto node = config.find(member);
  const std::string token = node ? read_config_token(*node, {.content = usual}).content : usual;
  const auto found = std::ranges::find(parts.entries, token, &VocabEntries::value_type::first);
  return found == parts.entries.end() ? std::vector<std::int32_t>{} : std::vector{found->second};
}

}  // namespace

bool is_byt5(const std::string& folder) {
  const nlohmann::json tree = read_tokenizer_config(folder);
  return io::JsonNode(tree, folder + tokenizer_config_file).text("tokenizer_class", "") ==
         "ByT5Tokenizer";
}

std::unique_ptr<Tokenizer> read_byt5(const std::string& folder) {
  const nlohmann::json tree = read_tokenizer_config(folder);
  const io::JsonNode config(tree, folder + tokenizer_config_file);
  std::map<std::int32_t, AddedToken> added;
  for (const auto& [member, token] :
       {std::pair{"pad_token", "<pad>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}}) {
    AddedToken usual{.content = token, .lstrip = true, .rstrip = true};
    const auto node = config.find(member);
    added.emplace(added.size(), node ? read_config_token(*node, usual) : usual);
  }
  PipelineParts parts;
  parts.unknown = 2;
  for (std::int32_t byte = 0, first = 3; byte < 256; ++byte)
    parts.entries.emplace_back(byte_alphabet()[static_cast<std::size_t>(byte)], first + byte);
  std::int32_t next = 3 + 256;
  const auto listed = config.find("additional_special_tokens");
  const auto count = config.find("extra_ids");
  const std::int64_t sentinels = count ? count->integer(0, max_extra_ids) : 125;
  if (listed)
    for (const io::JsonNode& node : listed->items()) added[next++] = read_config_token(node, {});
  for (std::int64_t i = 0; !listed && i < sentinels; ++i) added[next++] = {.content = sentinel(i)};
  for (const auto& [id, token] : read_tokens_by_id(config)) {
    if (id >= 3 && id < 3 + 256)
      config.at("added_tokens_decoder").fail("the id " + std::to_string(id) + " is a byte's");
    added[id] = token;
  }
  for (auto& [id, token] : added) {
    token.id = id;
    token.normalized = false;
    parts.entries.emplace_back(token.content, id);
    parts.added.push_back(std::move(token));
  }
  auto model = std::make_unique<BpeModel>(parts.entries, std::vector<BpeMerge>{},
                                          BpeOptions{.byte_level = true});
  parts.byte_id = [bytes = model.get()](unsigned char byte) { return bytes->byte_id(byte); };
  parts.model = std::move(model);
  parts.decoder = byte_level_decoder();
  parts.after = {1};
  parts.after_once = true;
  parts.cuts = Cuts::before_spaces;
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

std::unique_ptr<Tokenizer> read_t5(const std::string& folder) {
  const nlohmann::json tree = read_tokenizer_config(folder);
  const io::JsonNode config(tree, folder + tokenizer_config_file);
  expect_class(folder, config, "spiece.model", "T5Tokenizer");
  PipelineParts parts = read_pieces(folder + "/spiece.model");
  // Without the file, an export of tfm, whose models have no sentinels that the pieces lack.
  const auto count = config.find("extra_ids");
  const std::int64_t sentinels = count ? count->integer(0, max_extra_ids) : tree.empty() ? 0 : 100;
  for (std::int64_t i = sentinels; i-- > 0;) {
    const auto id = static_cast<std::int32_t>(parts.entries.size());
    parts.entries.emplace_back(sentinel(i), id);
    parts.added.push_back({.content = sentinel(i), .id = id, .normalized = false});
  }
  parts.after = id_of(parts, config, "eos_token", "</s>");
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

std::unique_ptr<Tokenizer> read_llama(const std::string& folder) {
  const nlohmann::json tree = read_tokenizer_config(folder);
  const io::JsonNode config(tree, folder + tokenizer_config_file);
  expect_class(folder, config, "tokenizer.model", "LlamaTokenizer");
  PipelineParts parts = read_pieces(folder + "/tokenizer.model");
  if (config.flag("add_bos_token", true)) parts.before = id_of(parts, config, "bos_token", "<s>");
  if (config.flag("add_eos_token", false)) parts.after = id_of(parts, config, "eos_token", "</s>");
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

std::unique_ptr<Tokenizer> refuse_fairseq(const std::string& folder) {
  refuse(folder, "sentencepiece.bpe.model is not supported, whose ids depend on the model");
}

}  // namespace tfm::tokenizer
