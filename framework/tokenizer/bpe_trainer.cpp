#include "tokenizer/bpe_trainer.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "core/error.h"
#include "core/task.h"
#include "core/utf8.h"
#include "io/file.h"
#include "text/documents.h"
#include "text/unicode.h"
#include "tokenizer/bpe_vocab.h"
#include "tokenizer/pre_tokenizer.h"

namespace tfm::tokenizer {
namespace {

using OrderedJson = nlohmann::ordered_json;
constexpr std::int64_t max_vocab = 1 << 24;

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>{}(text);
  }
};
using WordCounts = std::unordered_map<std::string, std::int64_t, TextHash, std::equal_to<>>;

WordCounts count_words(const TrainTokenizerOptions& options) {
  WordCounts counts;
  const auto splitter = gpt2_split();
  const PieceSink count = [&](Piece word) {
    const auto found = counts.find(word.text);
    found == counts.end() ? void(counts.emplace(word.text, 1)) : void(++found->second);
  };
  // A line feed after a printable ASCII character begins a word.
  const auto cut = [](std::string_view text) {
    std::size_t at = text.rfind('\n');
    const auto printable = [](char c) { return c > ' ' && c < '\x7F'; };
    while (at != text.npos && at > 0 && !printable(text[at - 1])) at = text.rfind('\n', at - 1);
    return at == text.npos ? 0 : at;
  };
  const auto add = [&](std::string_view text, bool) {
    while (!text.empty()) {
      const std::size_t valid = utf8_valid_prefix(text);
      if (valid > 0) splitter->split({text.substr(0, valid), false}, count);
      text.remove_prefix(std::min(valid + 1, text.size()));
    }
  };
  for (const std::string& input : options.inputs)
    text::read_documents(input, options.field, cut, add);
  if (counts.empty())
    throw Error(ExitCode::input,
                options.inputs.front() + ": no text to train a tokenizer on" +
                    (options.inputs.size() > 1 ? ", nor in the other inputs" : ""));
  return counts;
}

class Trainer {
 public:
  Trainer(const WordCounts& counts, std::vector<std::string> tokens,
          const std::array<std::int32_t, 256>& byte_id)
      : tokens_(std::move(tokens)) {
    for (std::size_t id = 0; id < tokens_.size(); ++id)
      ids_.emplace(tokens_[id], static_cast<std::int32_t>(id));
    const std::map<std::string_view, std::int64_t> sorted(counts.begin(), counts.end());
    for (const auto& [word, count] : sorted) {
      words_.push_back({{}, count});
      for (char c : word) words_.back().symbols.push_back(byte_id[static_cast<unsigned char>(c)]);
    }
    for (std::size_t w = 0; w < words_.size(); ++w)
      for (std::size_t i = 0; i + 1 < words_[w].symbols.size(); ++i)
        change(pair_of(words_[w].symbols[i], words_[w].symbols[i + 1]), words_[w].count, w);
    for (const auto& [pair, stats] : pairs_) queue_.push({stats.count, pair});
  }

  void run(std::size_t vocab_size) {
    Task task("merging pairs", static_cast<std::int64_t>(vocab_size - tokens_.size()));
    while (tokens_.size() < vocab_size && !queue_.empty()) {
      const std::size_t before = tokens_.size();
      const Candidate best = queue_.top();
      queue_.pop();
      Stats& stats = pairs_.at(best.pair);
      if (stats.count < 1) continue;
      if (stats.count != best.count)
        queue_.push({stats.count, best.pair});
      else
        merge(best.pair, std::move(stats.words));
      if (tokens_.size() > before) task.add(1);
    }
  }

  const std::vector<std::string>& tokens() const { return tokens_; }
  const std::vector<std::string>& merges() const { return merges_; }

 private:
  using Pair = std::uint64_t;  // left id in the high half
  struct Word {
    std::vector<std::int32_t> symbols;
    std::int64_t count;
  };
  struct Stats {
    std::int64_t count = 0;
    std::vector<std::uint32_t> words;  // that hold it, or did
  };
  struct Candidate {
    std::int64_t count;
    Pair pair;
    bool operator<(const Candidate& o) const {
      return count != o.count ? count < o.count : pair > o.pair;
    }  // best on top
  };

  static Pair pair_of(std::int32_t left, std::int32_t right) {
    return static_cast<Pair>(static_cast<std::uint32_t>(left)) << 32 |
           static_cast<std::uint32_t>(right);
  }

  void change(Pair pair, std::int64_t count, std::size_t word) {
    Stats& stats = pairs_[pair];
    stats.count += count;
    const auto w = static_cast<std::uint32_t>(word);
    if (count > 0 && (stats.words.empty() || stats.words.back() != w)) stats.words.push_back(w);
  }

  void merge(Pair pair, const std::vector<std::uint32_t> words) {
    const auto left = static_cast<std::int32_t>(pair >> 32),
               right = static_cast<std::int32_t>(pair & 0xFFFFFFFFu);
    merges_.push_back(tokens_[static_cast<std::size_t>(left)] + " " +
                      tokens_[static_cast<std::size_t>(right)]);
    const std::string join =
        tokens_[static_cast<std::size_t>(left)] + tokens_[static_cast<std::size_t>(right)];
    const auto [place, added] = ids_.emplace(join, static_cast<std::int32_t>(tokens_.size()));
    if (added) tokens_.push_back(join);
    const std::int32_t merged = place->second;
    std::vector<Pair> fresh;
    for (std::uint32_t w : words) {
      std::vector<std::int32_t>& s = words_[w].symbols;
      const std::int64_t count = words_[w].count;
      std::size_t out = 0;
      for (std::size_t in = 0; in < s.size(); ++in) {
        if (in + 1 == s.size() || s[in] != left || s[in + 1] != right) {
          s[out++] = s[in];
          continue;
        }
        if (out > 0) {
          change(pair_of(s[out - 1], left), -count, w);
          change(fresh.emplace_back(pair_of(s[out - 1], merged)), count, w);
        }
        if (in + 2 < s.size()) {
          change(pair_of(right, s[in + 2]), -count, w);
          change(fresh.emplace_back(pair_of(merged, s[in + 2])), count, w);
        }
        s[out++] = merged;
        ++in;
      }
      s.resize(out);
    }
    pairs_[pair].count = 0;
    std::sort(fresh.begin(), fresh.end());
    fresh.erase(std::unique(fresh.begin(), fresh.end()), fresh.end());
    for (Pair p : fresh)
      if (const std::int64_t count = pairs_.at(p).count; count > 0) queue_.push({count, p});
  }

  std::vector<std::string> tokens_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::vector<std::string> merges_;
  std::vector<Word> words_;
  std::unordered_map<Pair, Stats> pairs_;
  std::priority_queue<Candidate> queue_;
};

OrderedJson added_token(const std::string& content, std::size_t id) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

std::string as_json(const Trainer& trainer, const std::vector<std::string>& specials) {
  OrderedJson root;
  root["version"] = "1.0";
  root["truncation"] = root["padding"] = nullptr;
  root["added_tokens"] = OrderedJson::array();
  for (std::size_t i = 0; i < specials.size(); ++i)
    root["added_tokens"].push_back(added_token(specials[i], i));
  root["normalizer"] = nullptr;
  const OrderedJson bytes = {{"type", "ByteLevel"},
                             {"add_prefix_space", false},
                             {"trim_offsets", true},
                             {"use_regex", true}};
  root["pre_tokenizer"] = root["post_processor"] = root["decoder"] = bytes;
  OrderedJson& model = root["model"];
  model = {{"type", "BPE"},
           {"dropout", nullptr},
           {"unk_token", nullptr},
           {"continuing_subword_prefix", nullptr},
           {"end_of_word_suffix", nullptr},
           {"fuse_unk", false},
           {"byte_fallback", false},
           {"ignore_merges", false}};
  std::string vocab;
  for (std::size_t id = 0; id < trainer.tokens().size(); ++id)
    vocab += (id ? "," : "{") + OrderedJson(trainer.tokens()[id]).dump() + ":" + std::to_string(id);
  model["merges"] = trainer.merges();
  // The vocabulary is spliced in as text: an ordered object of nlohmann's finds its members one by
  // one.
  std::string text = root.dump(1);
  const std::string mark = "\"merges\":";
  text.insert(text.find(mark), "\"vocab\": " + vocab + "},\n  ");
  return text + "\n";
}

}  // namespace

std::int64_t train_tokenizer(const TrainTokenizerOptions& options) {
  std::vector<std::string> tokens = options.specials;
  for (const std::string& special : tokens)
    if (special.empty() || utf8_valid_prefix(special) != special.size())
      throw Error(ExitCode::usage,
                  "special token " + in_quotes(special) + ": expected text in UTF-8");
  if (std::unordered_set<std::string>(tokens.begin(), tokens.end()).size() != tokens.size())
    throw Error(ExitCode::usage, "a special token appears twice");
  std::vector<std::pair<std::uint32_t, unsigned>>
      alphabet;  // in the order of its characters, as the library has it
  for (unsigned byte = 0; byte < 256; ++byte)
    alphabet.emplace_back(text::first_code_point(byte_alphabet()[byte]).value, byte);
  std::sort(alphabet.begin(), alphabet.end());
  std::array<std::int32_t, 256> byte_id{};
  for (const auto& [symbol, byte] : alphabet) {
    byte_id[byte] = static_cast<std::int32_t>(tokens.size());
    if (std::find(options.specials.begin(), options.specials.end(), byte_alphabet()[byte]) !=
        options.specials.end())
      throw Error(ExitCode::usage, "special token " + in_quotes(byte_alphabet()[byte]) +
                                       " is a symbol of the byte alphabet; choose another one");
    tokens.push_back(byte_alphabet()[byte]);
  }
  const auto smallest = static_cast<std::int64_t>(tokens.size());
  if (options.vocab_size < smallest || options.vocab_size > max_vocab)
    throw Error(ExitCode::usage, "vocab-size " + std::to_string(options.vocab_size) +
                                     ": expected " + std::to_string(smallest) +
                                     " (256 bytes and the special tokens) to " +
                                     std::to_string(max_vocab));
  Trainer trainer(count_words(options), std::move(tokens), byte_id);
  trainer.run(static_cast<std::size_t>(options.vocab_size));
  io::replace_file(options.output, as_json(trainer, options.specials));
  return static_cast<std::int64_t>(trainer.tokens().size());
}

}  // namespace tfm::tokenizer
