#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "core/utf8.h"
#include "support/data_files.h"
#include "tokenizer/bpe_vocab.h"
#include "tokenizer/token_model.h"
#include "tokenizer/tokenizer.h"

namespace tfm {
namespace {

using test::expect_error;
using test::put;
using Ids = std::vector<std::int32_t>;
const std::string fixture = std::string(TFM_SOURCE_DIR) + "/tests/fixtures/bpe600";

// A folder with the 256 byte symbols as ids 0 to 255, then the merges' results in order.
std::string small_bpe(const test::TemporaryFolder& folder,
                      const std::vector<std::pair<std::string, std::string>>& merges) {
  nlohmann::json vocab;
  std::string lines = "#version: 0.2\n";
  for (int byte = 0; byte < 256; ++byte) vocab[tokenizer::byte_alphabet()[byte]] = byte;
  for (const auto& [left, right] : merges) {
    if (!vocab.contains(left + right)) vocab[left + right] = vocab.size();
    lines += left + " " + right + "\n";
  }
  put(folder / "vocab.json", vocab.dump());
  put(folder / "merges.txt", lines);
  return folder.str();
}

TEST(Utf8, AcceptsExactlyTheWellFormed) {
  // Every sequence of up to three bytes and the edges of four, against the definition by code
  // points.
  const auto encode = [](std::uint32_t c) {
    std::string s;
    if (c < 0x80)
      s = {static_cast<char>(c)};
    else if (c < 0x800)
      s = {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
    else if (c < 0x10000)
      s = {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 63)),
           static_cast<char>(0x80 | (c & 63))};
    else
      s = {static_cast<char>(0xF0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 63)),
           static_cast<char>(0x80 | (c >> 6 & 63)), static_cast<char>(0x80 | (c & 63))};
    return s;
  };
  for (std::uint32_t c = 0; c < 0x110000; ++c) {
    const bool surrogate = c >= 0xD800 && c < 0xE000;
    const std::string s = encode(c);
    ASSERT_EQ(utf8_length(s), surrogate ? 0 : s.size()) << c;
    if (!surrogate) {
      ASSERT_EQ(utf8_code_point(s, s.size()), c);
      ASSERT_EQ(s.size() > 1 ? utf8_length(s.substr(0, s.size() - 1)) : 0, 0u) << c;
    }
  }
  for (const char* bad :
       {"\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80", "\xF8\x88\x80\x80\x80", "\x80", "\xFF"})
    EXPECT_EQ(utf8_length(bad), 0u);
  EXPECT_EQ(utf8_valid_prefix("12345678é\xC3"), 10u);
  EXPECT_EQ(utf8_valid_prefix("1234567\xFF"), 7u);
}

TEST(ByteTokenizer, RoundTripsEveryByte) {
  const auto t = tokenizer::load_tokenizer("bytes");
  std::string all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
  const Ids ids = t->encode(all);
  for (int i = 0; i < 256; ++i) ASSERT_EQ(ids[i], i);
  EXPECT_EQ(t->decode(ids), all);
  EXPECT_EQ(t->vocab_size(), 256);
  EXPECT_FALSE(t->end_of_document());
  EXPECT_EQ(t->decode(Ids{72, 257, 105}), "Hi");
  expect_error(ExitCode::input, {"260", "position 1"}, [&] { t->decode(Ids{1, 260}); });
  expect_error(ExitCode::input, {"-1"}, [&] { t->decode(Ids{-1}); });
}

TEST(Bpe, EqualsTheReferenceOnTheFixture) {
  const auto t = tokenizer::load_tokenizer(fixture);
  EXPECT_EQ(t->vocab_size(), 600);
  EXPECT_EQ(t->end_of_document(), 0);
  std::ifstream lines(fixture + "/lines.jsonl"), expected(fixture + "/ids.txt");
  int count = 0;
  for (std::string line, ids; std::getline(lines, line) && std::getline(expected, ids); ++count) {
    const std::string text = nlohmann::json::parse(line).get<std::string>();
    std::istringstream in(ids);
    const Ids want{std::istream_iterator<std::int32_t>(in), {}};
    ASSERT_EQ(t->encode(text), want) << line;
    ASSERT_EQ(t->encode(text), want) << "from the cache: " << line;
    ASSERT_EQ(t->decode(want), text);
  }
  EXPECT_EQ(count, 300);
}

TEST(Bpe, MergesByRankThenFromTheLeft) {
  const test::TemporaryFolder folder;
  const auto t = tokenizer::load_tokenizer(
      small_bpe(folder, {{"b", "c"}, {"a", "b"}, {"a", "a"}, {"aa", "a"}, {"Ġ", "a"}}));
  EXPECT_EQ(t->encode("abc"), (Ids{'a', 256}));
  EXPECT_EQ(t->encode("ab"), (Ids{257}));
  EXPECT_EQ(t->encode("aaaaa"), (Ids{258, 259}));
  EXPECT_EQ(t->encode(" ab"), (Ids{' ', 257}));
  EXPECT_EQ(t->encode("a a"), (Ids{'a', 260}));
  EXPECT_EQ(t->encode(""), Ids{});
  EXPECT_FALSE(t->end_of_document());
}

// The chance of each result, by the definition: of the pairs with a merge, the best that is not
// left out is merged, until all are left out.
void add_chances(const std::vector<std::pair<std::string, std::string>>& merges, double rate,
                 const std::vector<std::string>& word, double chance,
                 std::map<std::vector<std::string>, double>& chances) {
  for (const auto& [left, right] : merges)
    for (std::size_t i = 0; i + 1 < word.size(); ++i) {
      if (word[i] != left || word[i + 1] != right) continue;
      std::vector<std::string> merged = word;
      merged[i] += right;
      merged.erase(merged.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      add_chances(merges, rate, merged, chance * (1 - rate), chances);
      chance *= rate;
    }
  chances[word] += chance;
}

TEST(Bpe, DropsMergesWithTheirProbability) {
  const test::TemporaryFolder folder;
  const std::vector<std::pair<std::string, std::string>> merges = {
      {"a", "b"}, {"b", "a"}, {"ab", "a"}, {"a", "a"}, {"ab", "ab"}};
  const auto t = tokenizer::load_tokenizer(small_bpe(folder, merges));
  ASSERT_TRUE(t->drops_merges());
  std::mt19937 random(9);
  const auto uniform = [&] { return (random() + 1.0) / 4294967296.0; };
  constexpr int kDraws = 20000;
  for (const double rate : {0.1, 0.5, 0.9}) {
    std::map<std::vector<std::string>, double> chances;
    add_chances(merges, rate, {"a", "b", "a", "a", "b"}, 1, chances);
    std::map<std::vector<std::string>, int> counts;
    for (int i = 0; i < kDraws; ++i) {
      std::vector<std::string> tokens;
      for (const std::int32_t id : t->encode("abaab", {rate, uniform}))
        tokens.push_back(t->decode({&id, 1}));
      ++counts[tokens];
    }
    for (const auto& [tokens, count] : counts) EXPECT_TRUE(chances.contains(tokens));
    for (const auto& [tokens, chance] : chances)
      EXPECT_NEAR(counts[tokens], kDraws * chance, 5 * std::sqrt(kDraws * chance) + 1);
  }
  const std::string text = "abaab abab " + std::string(2000, 'a');
  EXPECT_EQ(t->encode(text, {0, uniform}), t->encode(text));
  EXPECT_EQ(t->encode("ab a", {1, uniform}), (Ids{'a', 'b', ' ', 'a'}));
  EXPECT_EQ(t->encode("ab a"), t->encode("ab a", {0, uniform}));  // the cache knows no draws
  EXPECT_FALSE(tokenizer::load_tokenizer("bytes")->drops_merges());
}

TEST(Bpe, LongWordsMergeAsShortOnes) {
  // The definition, written plainly: merge the best pair, leftmost first, one at a time.
  const test::TemporaryFolder folder;
  const std::vector<std::pair<std::string, std::string>> merges = {
      {"a", "b"}, {"b", "a"},    {"ab", "a"}, {"c", "ab"},
      {"a", "a"}, {"aba", "ba"}, {"aa", "c"}, {"cab", "cab"}};
  const auto t = tokenizer::load_tokenizer(small_bpe(folder, merges));
  std::map<std::pair<std::string, std::string>, int> rank;
  for (const auto& m : merges) rank.emplace(m, static_cast<int>(rank.size()));
  std::mt19937 random(5);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<std::string> symbols;
    std::string word;
    for (std::size_t n = 1 + random() % 150; n > 0; --n) word += "abc"[random() % 3];
    for (char c : word) symbols.emplace_back(1, c);
    while (true) {
      std::size_t best = symbols.size();
      for (std::size_t i = 0; i + 1 < symbols.size(); ++i)
        if (const auto f = rank.find({symbols[i], symbols[i + 1]});
            f != rank.end() &&
            (best == symbols.size() || f->second < rank.at({symbols[best], symbols[best + 1]})))
          best = i;
      if (best == symbols.size()) break;
      symbols[best] += symbols[best + 1];
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    std::vector<std::string> got;
    for (std::int32_t id : t->encode(word)) got.push_back(t->decode(Ids{id}));
    ASSERT_EQ(got, symbols) << word;
  }
}

TEST(Bpe, KeepsBytesThatAreNoUtf8) {
  const test::TemporaryFolder folder;
  const auto t = tokenizer::load_tokenizer(small_bpe(folder, {{"a", "b"}, {"Ã", "©"}, {"â", "Ĥ"}}));
  EXPECT_EQ(t->encode("\xC3\xA9"), (Ids{257}));  // é is one word, merged
  EXPECT_EQ(t->encode("\xC3"), (Ids{0xC3}));     // cut off
  EXPECT_EQ(t->encode("\xE2\x82"),
            (Ids{0xE2, 0x82}));  // cut off: not merged, though the pair has a merge
  EXPECT_EQ(t->encode("a\xFF"
                      "b"),
            (Ids{'a', 0xFF, 'b'}));
  EXPECT_EQ(t->encode("ab\x80\xED\xA0\x80"
                      "ab"),
            (Ids{256, 0x80, 0xED, 0xA0, 0x80, 256}));
  std::mt19937 random(1);
  for (int trial = 0; trial < 3000; ++trial) {
    std::string text;
    for (std::size_t n = random() % 60; n > 0; --n)
      text.push_back(static_cast<char>(random() % 3 ? random() % 128 : random()));
    ASSERT_EQ(t->decode(t->encode(text)), text);
  }
}

TEST(Bpe, PiecesCutAtSafePlacesGiveTheSameIds) {
  const auto t = tokenizer::load_tokenizer(fixture);
  std::mt19937 random(2);
  const std::vector<std::string> parts = {
      " ",  "  ",  "\n",   "\t",           "a",        "std",
      "'",  "'ll", "é",    "\xE3\x80\x80", "\xC2\xA0", "\xE2\x80\x89",
      "12", "!",   "\xFF", "\xE2\x80",     "日",       "\xC2\x85"};
  int cuts = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    std::string text;
    for (std::size_t n = random() % 12; n > 0; --n) text += parts[random() % parts.size()];
    const std::size_t cut = t->safe_cut(text);
    std::string more = text;
    for (std::size_t n = random() % 4; n > 0; --n) more += parts[random() % parts.size()];
    Ids pieces = t->encode(std::string_view(more).substr(0, cut));
    const Ids rest = t->encode(std::string_view(more).substr(cut));
    pieces.insert(pieces.end(), rest.begin(), rest.end());
    ASSERT_EQ(pieces, t->encode(more)) << testing::PrintToString(more) << " cut at " << cut;
    cuts += cut > 0;
  }
  EXPECT_GT(cuts, 5000);
}

TEST(Bpe, ManyThreadsGetTheSameIds) {
  const auto t = tokenizer::load_tokenizer(fixture);
  const std::string text = test::get(fixture + "/lines.jsonl");
  const Ids want = t->encode(text);
  std::vector<Ids> got(4);
  {
    std::vector<std::jthread> threads;
    for (Ids& ids : got)
      threads.emplace_back([&] {
        for (int i = 0; i < 5; ++i) ids = t->encode(text);
      });
  }
  for (const Ids& ids : got) EXPECT_EQ(ids, want);
}

TEST(Bpe, LongRunsTakeLinearTime) {
  const auto t = tokenizer::load_tokenizer(fixture);
  for (const std::string& text : {std::string(1 << 20, ' '), std::string(1 << 20, 'a'),
                                  std::string(1 << 20, '=') + "x", std::string(1 << 20, '\xFF')})
    EXPECT_EQ(t->decode(t->encode(text)), text);
}

TEST(Bpe, DecodesSpecialsAndGaps) {
  const test::TemporaryFolder folder;
  small_bpe(folder, {});
  nlohmann::json vocab = nlohmann::json::parse(test::get(folder / "vocab.json"));
  vocab["two words"] = 300;
  vocab["</s>"] = 301;
  put(folder / "vocab.json", vocab.dump());
  const auto t = tokenizer::load_tokenizer(folder.str());
  EXPECT_EQ(t->vocab_size(), 302);
  EXPECT_EQ(t->end_of_document(), 301);
  EXPECT_EQ(t->decode(Ids{'a', 300, 301}), "atwo words</s>");
  EXPECT_EQ(t->encode("</s>").size(), 4u);
  for (std::int32_t id : {299, 302, -1})
    expect_error(ExitCode::input, {std::to_string(id), "position 0", "301"},
                 [&] { t->decode(Ids{id}); });
}

// The ids are those of transformers.
TEST(Bpe, MatchesTheTokensThatGpt2IsGiven) {
  const test::TemporaryFolder folder;
  small_bpe(folder, {{"<", "|"}});
  nlohmann::json vocab = nlohmann::json::parse(test::get(folder / "vocab.json"));
  vocab["<|endoftext|>"] = 257;
  put(folder / "vocab.json", vocab.dump());
  EXPECT_EQ(tokenizer::load_tokenizer(folder.str())->encode("a<|endoftext|>[PAD]<|"),
            (Ids{'a', 257, '[', 'P', 'A', 'D', ']', 256}));
  put(folder / "added_tokens.json", R"({"z y": 259, "[PAD]": 258})");
  const auto t = tokenizer::load_tokenizer(folder.str());
  EXPECT_EQ(t->encode("a<|endoftext|>[PAD]z y"), (Ids{'a', 257, 258, 259}));
  EXPECT_EQ(t->special_ids().pad, 258);
  EXPECT_EQ(t->special_ids().end, 257);
  EXPECT_EQ(t->vocab_size(), 260);
  vocab.erase("<|endoftext|>");
  put(folder / "vocab.json", vocab.dump());
  put(folder / "added_tokens.json", R"({"<eos>": 257, "<bos>": 258})");
  const auto other = tokenizer::load_tokenizer(folder.str());
  EXPECT_EQ(other->special_ids().begin, 258);
  EXPECT_EQ(other->special_ids().end, 257);
  EXPECT_EQ(other->end_of_document(), 257);
  vocab["<|endoftext|>"] = 257;
  put(folder / "vocab.json", vocab.dump());
  put(folder / "added_tokens.json", R"({"[PAD]": 300})");
  expect_error(ExitCode::input, {"added_tokens.json", "'[PAD]' the id 258, not 300"},
               [&] { tokenizer::load_tokenizer(folder.str()); });
}

TEST(Bpe, RefusesBrokenVocabularies) {
  const test::TemporaryFolder folder;
  small_bpe(folder, {{"a", "b"}});
  const std::string good = test::get(folder / "vocab.json");
  const auto refused = [&](const std::string& vocab, std::initializer_list<std::string> parts) {
    put(folder / "vocab.json", vocab);
    expect_error(ExitCode::input, parts, [&] { tokenizer::load_tokenizer(folder.str()); });
  };
  refused("", {"vocab.json", "invalid JSON"});
  refused("{}", {"empty"});
  refused("[1]", {"expected an object", "an array"});
  refused("7", {"expected an object", "7"});
  refused("{\"a\": {}}", {"'a'", "an object"});
  refused("{\"a\": -1}", {"'a'", "-1"});
  refused("{\"a\": 1.5}", {"'a'", "1.5"});
  refused("{\"a\": \"1\"}", {"'a'", "a string"});
  refused("{\"a\": 16777216}", {"'a'", "16777215"});
  refused("{\"a\": 99999999999999999999}", {"'a'"});
  refused("{\"a\": 1, \"a\": 2}", {"'a'", "twice"});
  refused("{\"a\": 1, \"b\": 1}", {"'b'", "id 1"});
  refused("{\"a\": 1}", {"symbol of byte 0"});
  refused(good.substr(0, good.size() / 2), {"invalid JSON", "byte"});
  refused(std::string(100000, '['), {"an array"});
  put(folder / "vocab.json", good);
  const auto merges = [&](const std::string& text, std::initializer_list<std::string> parts) {
    put(folder / "merges.txt", text);
    expect_error(ExitCode::input, parts, [&] { tokenizer::load_tokenizer(folder.str()); });
  };
  merges("#version: 0.2\na b\na\n", {"merges.txt:3", "two symbols"});
  merges("a b\n\na b\n", {"merges.txt:2"});
  merges("a b c\n", {"merges.txt:1"});
  merges(" a\n", {"merges.txt:1"});
  merges("a b\na b\n", {"merges.txt:2", "twice"});
  merges("b a\n", {"merges.txt:1", "'ba'", "vocabulary"});
  put(folder / "merges.txt", "#version: 0.2\r\na b\r\n");
  EXPECT_EQ(tokenizer::load_tokenizer(folder.str())->encode("ab"), (Ids{256}));
}

TEST(Bpe, SurvivesMutatedFiles) {
  const test::TemporaryFolder folder;
  small_bpe(folder, {{"a", "b"}, {"ab", "c"}});
  std::mt19937 random(3);
  const std::string vocab = test::get(folder / "vocab.json"),
                    merges = test::get(folder / "merges.txt");
  int refused = 0;
  for (int trial = 0; trial < 500; ++trial) {
    std::string v = vocab, m = merges;
    for (int k = 0; k < 2; ++k) {
      std::string& s = random() % 2 ? v : m;
      if (s.empty()) continue;
      if (random() % 4 == 0)
        s.resize(random() % s.size());
      else
        s[random() % s.size()] =
            random() % 2 ? "\"{}[]:, 019\n"[random() % 12] : static_cast<char>(random());
    }
    put(folder / "vocab.json", v);
    put(folder / "merges.txt", m);
    try {
      const auto t = tokenizer::load_tokenizer(folder.str());
      ASSERT_EQ(t->decode(t->encode("abc ab \xFF")), "abc ab \xFF");
    } catch (const Error& e) {
      ASSERT_EQ(e.code(), ExitCode::input) << e.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 200);
}

TEST(LoadTokenizer, RefusesWhatItCannotRead) {
  const test::TemporaryFolder folder;
  expect_error(ExitCode::input, {folder.str(), "no tokenizer.json", "vocab.json"},
               [&] { tokenizer::load_tokenizer(folder.str()); });
  put(folder / "x.model", "");
  expect_error(ExitCode::input, {"x.model", "unknown"},
               [&] { tokenizer::load_tokenizer(folder / "x.model"); });
  put(folder / "x.bin", "");
  expect_error(ExitCode::input, {"x.bin", "unsupported", "expected `bytes`", "tokenizer.json"},
               [&] { tokenizer::load_tokenizer(folder / "x.bin"); });
  expect_error(ExitCode::input, {"no such file"},
               [&] { tokenizer::load_tokenizer(folder / "missing"); });
  put(folder / "vocab.json", "{}");
  expect_error(ExitCode::input, {"merges.txt"}, [&] { tokenizer::load_tokenizer(folder.str()); });
  put(folder / "tokenizer.json", "{}");
  expect_error(ExitCode::input, {"tokenizer.json", "model", "missing"},
               [&] { tokenizer::load_tokenizer(folder.str()); });
}

}  // namespace
}  // namespace tfm
