#include "tokenizer/tokenizer_json.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>

#include "core/error.h"
#include "core/host.h"
#include "io/file.h"
#include "io/json.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/bpe_vocab.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/serde_json_float.h"
#include "tokenizer/tokenizer_config.h"
#include "tokenizer/unigram.h"
#include "tokenizer/wordpiece.h"

namespace tfm::tokenizer {
namespace {

constexpr std::size_t max_tokenizer_bytes = std::size_t{256} << 20;
constexpr std::int32_t max_id = (1 << 24) - 1;
using Ids = std::unordered_map<std::string, std::int32_t>;

std::int32_t read_id(const io::JsonNode& node) {
  return static_cast<std::int32_t>(node.integer(0, max_id));
}

std::optional<std::int32_t> find(const Ids& ids, const std::string& token) {
  const auto found = ids.find(token);
  return found == ids.end() ? std::nullopt : std::optional(found->second);
}

VocabEntries read_vocab(const io::JsonNode& node) {
  VocabEntries entries;
  std::unordered_set<std::int32_t> taken;
  for (const auto& [token, id] : node.members()) {
    if (!taken.insert(read_id(id)).second)
      id.fail("the id " + std::to_string(read_id(id)) + " already belongs to another token");
    entries.emplace_back(token, read_id(id));
  }
  if (entries.empty()) node.fail("the vocabulary is empty");
  return entries;
}

// The id of the token that the member names; empty where it is absent, null or "".
std::optional<std::int32_t> read_token_of(const io::JsonNode& model, const std::string& member,
                                          const VocabEntries& entries) {
  const auto node = model.find(member);
  if (!node || node->string().empty()) return std::nullopt;
  for (const auto& [token, id] : entries)
    if (token == node->string()) return id;
  node->fail(in_quotes(node->string()) + " is not in the vocabulary");
}

std::vector<std::pair<std::string, std::string>> read_merges(const io::JsonNode& node) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const io::JsonNode& merge : node.items()) {
    if (merge.is_string()) {
      const std::string& text = merge.string();
      const std::size_t space = text.find(' ');
      if (space == text.npos || space == 0 || space + 1 == text.size() ||
          text.find(' ', space + 1) != text.npos)
        merge.fail("expected two symbols with one space between, got " + in_quotes(text));
      pairs.emplace_back(text.substr(0, space), text.substr(space + 1));
    } else {
      const auto both = merge.items();
      if (both.size() != 2) merge.fail("expected two symbols, got " + std::to_string(both.size()));
      pairs.emplace_back(both[0].string(), both[1].string());
    }
  }
  return pairs;
}

void set_byte_level(PipelineParts& parts, std::unique_ptr<BpeModel> model) {
  const BpeModel* bytes = model.get();
  parts.model = std::move(model);
  parts.byte_id = [bytes](unsigned char byte) { return bytes->byte_id(byte); };
}

void read_bpe(const io::JsonNode& node, bool byte_level, PipelineParts& parts) {
  node.expect_only({"type", "dropout", "unk_token", "continuing_subword_prefix",
                    "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges", "vocab",
                    "merges"});
  if (const auto dropout = node.find("dropout"); dropout && dropout->number() != 0)
    dropout->fail("dropout is not supported by this version");
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const auto text = node.find(affix); text && !text->string().empty())
      text->fail("is not supported by this version");
  parts.entries = read_vocab(node.at("vocab"));
  BpeOptions options;
  options.byte_level = byte_level;
  options.ignore_merges = node.flag("ignore_merges", false);
  options.byte_fallback = node.flag("byte_fallback", false);
  options.fuse_unknown = node.flag("fuse_unk", false);
  options.unknown = parts.unknown = read_token_of(node, "unk_token", parts.entries);
  if (byte_level && options.byte_fallback)
    node.at("byte_fallback").fail("is not supported with a ByteLevel pre-tokenizer");
  const io::JsonNode list = node.at("merges");
  const auto merges = merges_of_pairs(parts.entries, read_merges(list), [&](std::size_t i) {
    return list.where() + "[" + std::to_string(i) + "]";
  });
  auto model = std::make_unique<BpeModel>(parts.entries, merges, options);
  if (byte_level)
    set_byte_level(parts, std::move(model));
  else
    parts.model = std::move(model);
}

void read_wordpiece(const io::JsonNode& node, PipelineParts& parts) {
  node.expect_only(
      {"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
  parts.entries = read_vocab(node.at("vocab"));
  node.at("unk_token");
  parts.unknown = read_token_of(node, "unk_token", parts.entries);
  if (!parts.unknown) node.at("unk_token").fail("expected a token");
  parts.model = std::make_unique<WordPieceModel>(
      parts.entries, node.text("continuing_subword_prefix", "##"), *parts.unknown,
      node.at("max_input_chars_per_word").integer(0, 1 << 20));
}

void read_unigram(const io::JsonNode& node, PipelineParts& parts) {
  node.expect_only({"type", "unk_id", "vocab", "byte_fallback"});
  std::vector<UnigramPiece> pieces;
  Ids ids;
  UnigramOptions options;
  options.lowest_score = std::numeric_limits<double>::infinity();
  for (const io::JsonNode& item : node.at("vocab").items()) {
    const auto pair = item.items();
    if (pair.size() != 2) item.fail("expected a piece and its score");
    const std::int32_t id = static_cast<std::int32_t>(pieces.size());
    if (id > max_id) item.fail("the vocabulary is too large");
    pieces.push_back({pair[0].string(), id, pair[1].number()});
    options.lowest_score = std::min(options.lowest_score, pieces.back().score);
    if (!ids.emplace(pieces.back().text, id).second)
      item.fail("the piece " + in_quotes(pieces.back().text) + " appears twice");
    parts.entries.emplace_back(pieces.back().text, id);
  }
  if (pieces.empty()) node.at("vocab").fail("the vocabulary is empty");
  if (const auto unknown = node.find("unk_id"))
    parts.unknown = options.unknown = static_cast<std::int32_t>(
        unknown->integer(0, static_cast<std::int64_t>(pieces.size()) - 1));
  options.byte_ids.fill(-1);
  for (int byte = 0; byte < 256 && node.flag("byte_fallback", false); ++byte) {
    static constexpr char digits[] = "0123456789ABCDEF";
    options.byte_ids[byte] =
        find(ids, std::string("<0x") + digits[byte >> 4] + digits[byte & 15] + ">").value_or(-1);
  }
  parts.model = std::make_unique<UnigramModel>(pieces, options);
}

// The library numbers tokens outside the vocabulary itself, on from the number of its entries, and
// ignores those without content.
void read_added_tokens(const io::JsonNode& node, PipelineParts& parts) {
  Ids ids(parts.entries.begin(), parts.entries.end());
  std::unordered_map<std::int32_t, std::string> tokens;
  for (const auto& [token, id] : parts.entries) tokens.emplace(id, token);
  for (const io::JsonNode& item : node.items()) {
    item.expect_only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken t{item.at("content").string(), read_id(item.at("id"))};
    if (t.content.empty()) continue;
    t.single_word = item.flag("single_word", false);
    t.lstrip = item.flag("lstrip", false);
    t.rstrip = item.flag("rstrip", false);
    t.normalized = item.flag("normalized", !item.flag("special", false));
    if (const auto known = find(ids, t.content); known && *known != t.id)
      item.fail("the vocabulary assigns to " + in_quotes(t.content) + " the id " +
                std::to_string(*known));
    const auto [place, added] = tokens.emplace(t.id, t.content);
    if (!added && place->second != t.content)
      item.fail("the id " + std::to_string(t.id) + " belongs to " + in_quotes(place->second));
    if (ids.emplace(t.content, t.id).second) {
      if (const auto next = static_cast<std::int32_t>(parts.entries.size()); t.id != next)
        item.fail("the library (tokenizers 0.23) gives " + in_quotes(t.content) + " the id " +
                  std::to_string(next) + ", not " + std::to_string(t.id));
      parts.entries.emplace_back(t.content, t.id);
    }
    parts.added.push_back(std::move(t));
  }
}

void read_template(const io::JsonNode& node, PipelineParts& parts) {
  node.expect_only({"type", "single", "pair", "special_tokens"});
  const io::JsonNode specials = node.at("special_tokens");
  bool seen = false;
  for (const io::JsonNode& item : node.at("single").items()) {
    item.expect_only({"Sequence", "SpecialToken"});
    if (const auto sequence = item.find("Sequence")) {
      if (seen || sequence->at("id").string() != "A") item.fail("expected sequence A exactly once");
      seen = true;
      continue;
    }
    const std::string name = item.at("SpecialToken").at("id").string();
    for (const io::JsonNode& id : specials.at(name).at("ids").items())
      (seen ? parts.after : parts.before).push_back(read_id(id));
  }
  if (!seen) node.at("single").fail("expected sequence A exactly once");
}

std::int32_t read_pair_id(const io::JsonNode& node) {
  const auto pair = node.items();
  if (pair.size() != 2) node.fail("expected a token and its id");
  pair[0].string();
  return read_id(pair[1]);
}

void read_post_processor(const io::JsonNode& node, PipelineParts& parts) {
  const std::string type = node.at("type").string();
  if (type == "ByteLevel") return;  // it changes offsets, not ids
  if (type == "Sequence") {
    for (const io::JsonNode& item : node.at("processors").items()) read_post_processor(item, parts);
    return;
  }
  if (!parts.before.empty() || !parts.after.empty())
    node.fail("a second post-processor that adds tokens is not supported");
  if (type == "TemplateProcessing") return read_template(node, parts);
  if (type != "BertProcessing" && type != "RobertaProcessing")
    node.fail("post-processor " + in_quotes(type) + " is not supported by this version");
  node.expect_only({"type", "sep", "cls", "trim_offsets", "add_prefix_space"});
  parts.before = {read_pair_id(node.at("cls"))};
  parts.after = {read_pair_id(node.at("sep"))};
}

void read_model(const io::JsonNode& node, bool byte_level, PipelineParts& parts) {
  const auto named = node.find("type");  // old files have none
  const std::string type = named ? named->string() : node.find("merges") ? "BPE" : "WordPiece";
  if (type == "BPE") return read_bpe(node, byte_level, parts);
  if (type != "WordPiece" && type != "Unigram")
    node.fail("model " + in_quotes(type) + " is not supported by this version");
  if (byte_level) node.fail("model " + type + " is not supported with a ByteLevel pre-tokenizer");
  type == "WordPiece" ? read_wordpiece(node, parts) : read_unigram(node, parts);
}

// What transformers adds to GPT-2's vocabulary, as added_tokens of tokenizer.json: the end of a
// text and, by their ids, the tokens of the file that it may have written.
nlohmann::json added_to_gpt2(const Ids& vocabulary, const std::string& path) {
  VocabEntries tokens;
  if (std::filesystem::exists(path)) tokens = read_vocab_json(path);
  std::ranges::sort(tokens, {}, &VocabEntries::value_type::second);
  if (const auto id = find(vocabulary, "<|endoftext|>")) tokens.emplace_back("<|endoftext|>", *id);
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [token, id] : tokens)
    list.push_back({{"id", id}, {"content", token}, {"special", true}});
  return list;
}

// Settings of tokenizer_config.json that versions of transformers disagree about, and added tokens
// at which the library would split a text into characters.
void warn_of_differences(const std::string& path, const Settings& ignored,
                         const PipelineParts& parts) {
  std::string all;
  for (const std::string& setting : ignored) all += (all.empty() ? "" : ", ") + setting;
  if (!all.empty())
    all = "its tokenizer_config.json says " + all +
          ", which transformers 4 and 5 do not both obey; tokenizer.json is used";
  for (const AddedToken& token : parts.added) {
    std::string text = token.content;
    if (!token.normalized || !parts.normalizer) continue;
    parts.normalizer->apply(text);
    if (text.empty())
      all += (all.empty() ? "" : "; ") + std::string("the added token ") +
             in_quotes(token.content) +
             " is empty once it is normalized and matches nothing, where tokenizers 0.23 splits "
             "texts into characters; set its \"normalized\" to false";
  }
  if (!all.empty() && rank_of_launch() == 0)
    std::fprintf(stderr, "warning: %s: %s\n", path.c_str(), all.c_str());
}

}  // namespace

std::unique_ptr<Tokenizer> read_tokenizer_json(const std::string& path) {
  nlohmann::json tree = io::read_json_file(path, max_tokenizer_bytes, serde_json_float);
  const io::JsonNode root(tree, path);
  root.expect_only({"version", "truncation", "padding", "added_tokens", "normalizer",
                    "pre_tokenizer", "post_processor", "decoder", "model"});
  if (const auto version = root.find("version"); version && version->string() != "1.0")
    version->fail("expected 1.0, got " + in_quotes(version->string()));
  const std::filesystem::path file(path);
  const std::string folder = file.parent_path().empty() ? "." : file.parent_path().string();
  const nlohmann::json beside =
      file.filename() == "tokenizer.json" ? read_tokenizer_config(folder) : nlohmann::json();
  const io::JsonNode config(beside, folder + tokenizer_config_file);
  Settings ignored;
  if (!beside.empty()) ignored = change_components(folder, config, tree);
  PipelineParts parts;
  if (const auto node = root.find("normalizer")) parts.normalizer = read_normalizer(*node);
  bool byte_level = false;
  if (const auto node = root.find("pre_tokenizer")) {
    PreTokenization split = read_pre_tokenizer(*node);
    parts.splitter = std::move(split.splitter);
    byte_level = split.byte_level;
  }
  read_model(root.at("model"), byte_level, parts);
  if (const auto node = root.find("added_tokens")) read_added_tokens(*node, parts);
  if (const auto node = root.find("post_processor")) read_post_processor(*node, parts);
  if (const auto node = root.find("decoder")) parts.decoder = read_decoder(*node);
  if (!beside.empty())
    for (std::string& setting : change_tokens(folder, config, parts))
      ignored.push_back(std::move(setting));
  warn_of_differences(path, ignored, parts);
  std::unordered_set<std::int32_t> known;
  for (const auto& [token, id] : parts.entries) known.insert(id);
  for (const auto* list : {&parts.before, &parts.after})
    for (std::int32_t id : *list)
      if (!known.contains(id))
        root.at("post_processor").fail("no token has the id " + std::to_string(id));
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

std::unique_ptr<Tokenizer> read_gpt2_files(const std::string& vocab_path,
                                           const std::string& merges_path) {
  PipelineParts parts;
  parts.entries = read_vocab_json(vocab_path);
  if (parts.entries.empty()) throw Error(ExitCode::input, vocab_path + ": the vocabulary is empty");
  std::vector<std::pair<std::string, std::string>> pairs;
  std::vector<std::int64_t> lines;
  for (MergeLine& m : read_merges_txt(merges_path)) {
    pairs.emplace_back(std::move(m.left), std::move(m.right));
    lines.push_back(m.line);
  }
  const Ids ids(parts.entries.begin(), parts.entries.end());
  for (int byte = 0; byte < 256; ++byte)
    if (!ids.contains(byte_alphabet()[byte]))
      throw Error(ExitCode::input, vocab_path + ": no entry \"" + byte_alphabet()[byte] +
                                       "\", the symbol of byte " + std::to_string(byte) +
                                       "; expected a byte-level vocabulary with all 256 bytes");
  const auto merges = merges_of_pairs(parts.entries, pairs, [&](std::size_t i) {
    return merges_path + ":" + std::to_string(lines[i]);
  });
  BpeOptions options;
  options.byte_level = true;
  set_byte_level(parts, std::make_unique<BpeModel>(parts.entries, merges, options));
  const std::string added_path =
      std::filesystem::path(vocab_path).replace_filename("added_tokens.json");
  const nlohmann::json added = added_to_gpt2(ids, added_path);
  read_added_tokens(io::JsonNode(added, added_path), parts);
  parts.splitter = gpt2_split();
  parts.decoder = byte_level_decoder();
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

}  // namespace tfm::tokenizer
