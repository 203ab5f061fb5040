#include <gtest/gtest.h>

#include <mutex>
#include <numeric>
#include <random>
#include <set>

#include "data/encode_file.h"
#include "data/loader.h"
#include "data/next_token.h"
#include "data/pairs.h"
#include "data/prepare.h"
#include "data/source.h"
#include "data/token_file.h"
#include "data/token_origin.h"
#include "support/compressed.h"
#include "support/data_files.h"

namespace tfm {
namespace {

using test::all_of;
using test::counting;
using test::expect_error;
using test::Ids;
using test::put;
using test::TemporaryFolder;
using test::write_llmc;
using test::write_megatron;
const std::string fixture = std::string(TFM_SOURCE_DIR) + "/tests/fixtures/bpe600";

TEST(DataSampler, IsAPermutationOfEveryEpoch) {
  std::vector<std::int64_t> sizes = {1, 2, 3, 4, 5, 7, 8, 9, 63, 64, 65, 1000, 4097, 100003};
  for (std::int64_t n : sizes) {
    const data::Sampler order(n, true, 99);
    for (std::int64_t epoch : {0, 1, 5}) {
      std::vector<char> seen(static_cast<std::size_t>(n));
      for (std::int64_t p = 0; p < n; ++p) {
        const std::int64_t s = order.sample(epoch * n + p);
        ASSERT_TRUE(s >= 0 && s < n && !seen[s]) << n << " " << epoch << " " << p;
        seen[s] = 1;
      }
    }
  }
}

TEST(DataSampler, KnownAnswers) {
  const auto take = [](const data::Sampler& o, std::vector<std::int64_t> positions) {
    for (auto& p : positions) p = o.sample(p);
    return positions;
  };
  std::vector<std::int64_t> twenty(20);
  std::iota(twenty.begin(), twenty.end(), 0);
  EXPECT_EQ(
      take(data::Sampler(10, true, 1234), twenty),
      (std::vector<std::int64_t>{5, 0, 4, 9, 8, 3, 2, 7, 6, 1, 3, 9, 0, 1, 4, 6, 7, 5, 8, 2}));
  EXPECT_EQ(take(data::Sampler(1000003, true, 42), {0, 1, 2, 1000002, 1000003, 5000000}),
            (std::vector<std::int64_t>{995833, 778162, 224983, 136457, 25725, 204473}));
  const std::int64_t huge = std::int64_t{3} << 40;
  EXPECT_EQ(take(data::Sampler(huge, true, (std::uint64_t{1} << 63) + 7), {0, 1, huge}),
            (std::vector<std::int64_t>{1952457629212, 231155030136, 1777453483777}));
  EXPECT_EQ(take(data::Sampler(10, false, 1), {0, 9, 10, 25}),
            (std::vector<std::int64_t>{0, 9, 0, 5}));
}

TEST(DataSampler, DependsOnSeedAndEpochAndLooksRandom) {
  const std::int64_t n = 1000;
  const data::Sampler a(n, true, 1), b(n, true, 2), c(n, true, std::uint64_t{1} << 32 | 1);
  int same_seed = 0, same_high = 0, same_epoch = 0, fixed = 0, neighbors = 0;
  double sum = 0;
  for (std::int64_t p = 0; p < n; ++p) {
    same_seed += a.sample(p) == b.sample(p);
    same_high += a.sample(p) == c.sample(p);
    same_epoch += a.sample(p) == a.sample(p + n);
    fixed += a.sample(p) == p;
    if (p > 0) neighbors += std::abs(a.sample(p) - a.sample(p - 1)) == 1;
    if (p < n / 2) sum += static_cast<double>(a.sample(p));
  }
  for (int count : {same_seed, same_high, same_epoch, fixed, neighbors}) EXPECT_LT(count, 12);
  EXPECT_NEAR(sum / (n / 2.0), 499.5, 50);
}

data::Source source_of(std::vector<std::pair<std::int32_t, double>> sizes, std::int64_t seq_len,
                       bool weighted = false) {
  std::vector<data::Source::Group> groups;
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    data::Source::Group g{"g" + std::to_string(k), {}, sizes[k].second};
    g.streams.push_back(std::make_unique<data::MemoryTokens>(
        g.name, counting(sizes[k].first, static_cast<std::int32_t>(k) * 1000000)));
    groups.push_back(std::move(g));
  }
  return data::Source(std::move(groups), seq_len, weighted);
}
Ids sample_of(const data::Source& s, std::int64_t i) {
  Ids ids(static_cast<std::size_t>(s.seq_len()) + 1);
  s.read(i, ids);
  return ids;
}

TEST(Source, SamplesOverlapByOneAndStayInAFile) {
  const data::Source s = source_of({{13, 1}, {4, 1}, {3, 1}, {9, 1}}, 4);
  EXPECT_EQ(s.samples(), 3 + 0 + 0 + 2);
  EXPECT_EQ(s.tokens(), 29);
  EXPECT_EQ(sample_of(s, 0), counting(5));
  EXPECT_EQ(sample_of(s, 2), counting(5, 8));
  EXPECT_EQ(sample_of(s, 3), counting(5, 3000000));
  EXPECT_EQ(sample_of(s, 4), counting(5, 3000004));
  EXPECT_THROW(sample_of(s, 5), Error);
  EXPECT_THROW(sample_of(s, -1), Error);
  EXPECT_EQ(source_of({{5, 1}}, 4).samples(), 1);
  expect_error(ExitCode::input, {"g0", "5 tokens"}, [] { source_of({{4, 1}}, 4); });
  expect_error(ExitCode::input, {"0 tokens"}, [] { source_of({{0, 1}}, 4); });
}

TEST(Source, CountsWhatNoSampleHolds) {
  EXPECT_EQ(source_of({{13, 1}, {5, 1}}, 4).left_out(), "");
  const std::string tail = source_of({{16, 1}, {5, 1}}, 4).left_out();
  EXPECT_TRUE(tail.starts_with("3 of 21 tokens ")) << tail;
  EXPECT_EQ(tail.find("files"), tail.npos) << tail;
  const std::string all = source_of({{16, 1}, {4, 1}, {0, 1}, {9, 1}}, 4).left_out();
  EXPECT_TRUE(all.starts_with("7 of 29 tokens ")) << all;
  EXPECT_NE(all.find("sample of 5 tokens"), all.npos) << all;
  EXPECT_NE(all.find("2 of 4 files"), all.npos) << all;
  expect_error(ExitCode::input, {"3 files", "9 tokens", "longest 4", "at least 5 tokens"}, [] {
    source_of({{4, 1}, {3, 1}, {2, 1}}, 4);
  });
  for (std::int64_t tokens : {0, 1, 4, 5, 8, 9, 10}) {
    const data::SampleCount count = data::count_samples(tokens, 4);
    EXPECT_EQ(count.samples, source_of({{5, 1}, {tokens, 1}}, 4).samples() - 1) << tokens;
    EXPECT_EQ(count.samples == 0 ? count.left_out : count.samples * 4 + 1 + count.left_out, tokens);
  }
}

TEST(Source, ReadsCompressedTextAsPlain) {
  const TemporaryFolder folder;
  const std::string lines = "{\"text\": \"ab\"}\n{\"text\": \"\"}\n{\"text\": \"cd\"}\n";
  put(folder / "a.jsonl", lines);
  const auto bpe = tokenizer::load_tokenizer(fixture);
  const auto tokens_of = [&](const std::string& path) {
    const auto s = data::open_source({true, {{path}}}, *bpe, 1);
    Ids ids(1, sample_of(*s, 0)[0]);
    for (std::int64_t i = 0; i < s->samples(); ++i) ids.push_back(sample_of(*s, i)[1]);
    return ids;
  };
  const Ids want = tokens_of(folder / "a.jsonl");  // with an end after each document
  put(folder / "a.jsonl.gz", test::gzip(lines));
  put(folder / "a.jsonl.zst", test::zstandard(lines));
  EXPECT_EQ(tokens_of(folder / "a.jsonl.gz"), want);
  EXPECT_EQ(tokens_of(folder / "a.jsonl.zst"), want);
  data::PrepareOptions options{
      {folder / "a.jsonl.gz", folder / "a.jsonl.zst"}, fixture, folder / "o.bin"};
  const data::Prepared made = data::prepare_tokens(options);
  EXPECT_EQ(made.documents, 4);
  EXPECT_EQ(made.empty, 2);
}

TEST(Source, WeightsShareEveryBlock) {
  const data::Source s = source_of({{1501, 3}, {301, 1}}, 1,
                                   true);  // 1500 and 300 samples; 750 and 250 places a block
  EXPECT_EQ(s.samples(), 2000);
  std::map<std::int32_t, int> seen;
  int first = 0;
  for (std::int64_t i = 0; i < s.samples(); ++i) {
    const std::int32_t id = sample_of(s, i)[0];
    ++seen[id];
    first += id < 1000000;
    EXPECT_NEAR(first, 0.75 * static_cast<double>(i + 1), 1.0);
  }
  EXPECT_EQ(first, 1500);
  for (std::int32_t i = 0; i < 1500; ++i) ASSERT_EQ(seen[i], 1);
  for (std::int32_t i = 0; i < 300; ++i) ASSERT_EQ(seen[1000000 + i], i < 200 ? 2 : 1);
}

// What raises small paths to a place each is given up by the large ones alike.
TEST(Source, LargePathsGiveUpPlacesAlike) {
  std::vector<std::pair<std::int32_t, double>> sizes{{50, 0.52}, {50, 0.48}};
  for (int k = 0; k < 300; ++k) sizes.emplace_back(3, 1e-9);
  const data::Source s = source_of(sizes, 1, true);
  std::vector<std::int64_t> count(sizes.size());
  for (std::int64_t i = 0; i < 1000; ++i)
    ++count[static_cast<std::size_t>(sample_of(s, i)[0] / 1000000)];
  EXPECT_NEAR(static_cast<double>(count[0]), 520 - 150, 1);
  EXPECT_NEAR(static_cast<double>(count[1]), 480 - 150, 1);
}

// Whatever the weights and sizes: places of a block within one of the share, at least one each, and
// an epoch that shows every sample in the fewest blocks.
TEST(Source, SharesOfRandomMixtures) {
  std::mt19937 random(7);
  const auto uniform = [&] { return static_cast<double>(random() % 100000 + 1) / 100000; };
  int gave_way = 0;
  for (int trial = 0; trial < 60; ++trial) {
    const std::size_t n = 1 + random() % 7;
    std::vector<std::pair<std::int32_t, double>> sizes;
    double total = 0;
    for (std::size_t k = 0; k < n; ++k) {
      const double weight = random() % 2 ? uniform() : std::pow(uniform(), 6) * 1e-3;
      sizes.emplace_back(static_cast<std::int32_t>(2 + random() % 900), weight);
      total += weight;
    }
    const data::Source s = source_of(sizes, 1, true);
    ASSERT_EQ(s.samples() % 1000, 0);
    std::map<std::int32_t, std::int64_t> seen;
    std::vector<std::int64_t> count(n);
    for (std::int64_t i = 0; i < s.samples(); ++i) {
      const std::int32_t id = sample_of(s, i)[0];
      ++seen[id];
      if (i < 1000) ++count[static_cast<std::size_t>(id / 1000000)];
      ASSERT_EQ(id / 1000000, sample_of(s, i % 1000)[0] / 1000000) << "blocks are alike";
    }
    std::int64_t blocks = 0, small = 0;
    for (const auto& [size, weight] : sizes) small += weight / total < 1e-3;
    for (std::size_t k = 0; k < n; ++k) {
      const auto& [size, weight] = sizes[k];
      const double share = 1000 * weight / total, places = static_cast<double>(count[k]);
      EXPECT_GE(places, 1);
      // Those of less than a place are raised to one, which the others give up.
      EXPECT_LT(places, share + 1 + 1e-9);
      EXPECT_GT(places, share - 1 - static_cast<double>(small) - 1e-9);
      blocks = std::max(blocks, (size - 1 + count[k] - 1) / count[k]);
      std::int64_t fewest = s.samples(), most = 0;
      for (std::int32_t i = 0; i < size - 1; ++i) {
        const std::int64_t times = seen[static_cast<std::int32_t>(k) * 1000000 + i];
        fewest = std::min(fewest, times), most = std::max(most, times);
      }
      EXPECT_GE(fewest, 1);
      EXPECT_LE(most - fewest, 1) << "a path repeats as a whole";
    }
    EXPECT_EQ(s.samples(), blocks * 1000);
    gave_way += small > 0;
  }
  EXPECT_GT(gave_way, 10);
}

TEST(Source, EqualWeightsAreSharesToo) {
  for (const double weight : {1.0, 0.25}) {
    const data::Source s = source_of({{1501, weight}, {301, weight}}, 1, true);
    EXPECT_EQ(s.samples(), 3000);
    for (std::int64_t i = 0; i < s.samples(); ++i)
      ASSERT_EQ(sample_of(s, i)[0] < 1000000, i % 2 == 0) << i;
  }
}

TEST(Source, WeightsOfManyPathsShowEverything) {
  const data::Source s = source_of({{8, 0.001}, {200, 1e6}, {50, 1e-9}, {90, 7}}, 3, true);
  std::set<std::int32_t> seen;
  for (std::int64_t i = 0; i < s.samples(); ++i) seen.insert(sample_of(s, i)[0]);
  EXPECT_EQ(seen.size(), 2u + 66 + 16 + 29);
  for (double bad : {0.0, -1.0, std::nan(""), HUGE_VAL})
    expect_error(ExitCode::usage, {"g1", "weight"}, [&] { source_of({{9, 1}, {9, bad}}, 3); });
  expect_error(ExitCode::input, {"g1", "shorter than one sample"}, [] {
    source_of({{9, 1}, {3, 2}}, 3, true);
  });
}

TEST(Source, RefusesTheFirstIdBeyondTheVocabulary) {
  data::Source text = source_of({{9, 1}}, 4);
  text.check_ids(9);
  EXPECT_EQ(sample_of(text, 1), counting(5, 4));
  expect_error(ExitCode::input, {"id 8", "8"}, [&] { text.check_ids(8); });
  const TemporaryFolder folder;
  const auto bytes = tokenizer::load_tokenizer("bytes");
  const auto file =
      data::open_source({false, {{write_llmc(folder / "a.bin", counting(9))}}}, *bytes, 4);
  file->check_ids(9);
  EXPECT_EQ(sample_of(*file, 1), counting(5, 4));
  file->check_ids(8);
  EXPECT_EQ(sample_of(*file, 0), counting(5));
  expect_error(ExitCode::input, {"token 8", "id 8"}, [&] { sample_of(*file, 1); });
  EXPECT_EQ(data::check_all_ids(data::TokenFile(folder / "a.bin"), 9), 8);
  expect_error(ExitCode::input, {"token 8", "below 8", "got 8"},
               [&] { data::check_all_ids(data::TokenFile(folder / "a.bin"), 8); });
}

// The id that ends a document is searched among the first 2^20 ids of a file.
TEST(Source, SearchesTheFirstIdsForTheEndOfADocument) {
  constexpr std::int64_t kMost = 1 << 20;
  for (const auto& [at, found] :
       {std::pair<std::int64_t, bool>{0, true}, {kMost - 1, true}, {kMost, false}}) {
    Ids ids(static_cast<std::size_t>(kMost + 2), 7);
    ids[static_cast<std::size_t>(at)] = 3;
    std::vector<data::Source::Group> groups(1);
    groups[0].streams.push_back(std::make_unique<data::MemoryTokens>("long", std::move(ids)));
    const data::Source s(std::move(groups), 4);
    EXPECT_EQ(s.without_documents(3), found ? "" : "long") << at;
    EXPECT_EQ(s.without_documents(4), "long");
    EXPECT_EQ(s.without_documents({}), "long");
  }
}

TEST(Source, AThousandPathsMayHaveWeights) {
  std::vector<std::pair<std::int32_t, double>> sizes(1000, {2, 0.5});
  EXPECT_EQ(source_of(sizes, 1, true).samples(), 1000);
  sizes.emplace_back(2, 0.5);
  EXPECT_EQ(source_of(sizes, 1).samples(), 1001);
  expect_error(ExitCode::usage, {"at most 1000 paths", "1001"}, [&] { source_of(sizes, 1, true); });
}

// What does not divide a block goes to the largest remainders, to the first of equal ones; a path
// alone has all of it.
TEST(Source, SharesOfABlockByTheLargestRemainders) {
  const auto counts = [](const std::vector<double>& weights) {
    std::vector<std::pair<std::int32_t, double>> sizes;
    for (const double w : weights) sizes.emplace_back(3, w);
    const data::Source s = source_of(sizes, 1, true);
    std::vector<int> count(weights.size());
    for (std::int64_t i = 0; i < 1000; ++i)
      ++count[static_cast<std::size_t>(sample_of(s, i)[0] / 1000000)];
    return count;
  };
  EXPECT_EQ(counts({2}), (std::vector<int>{1000}));
  EXPECT_EQ(counts({1, 1, 1}), (std::vector<int>{334, 333, 333}));
  EXPECT_EQ(counts({2, 2, 2, 1}), (std::vector<int>{286, 286, 285, 143}));  // 285.7 and 142.9
  EXPECT_EQ(counts({1, 1, 1, 3, 1}), (std::vector<int>{143, 143, 143, 428, 143}));  // 428.6, 142.9
  EXPECT_EQ(counts({1e-6, 1}), (std::vector<int>{1, 999}));
  EXPECT_EQ(counts({1.9, 998.1}), (std::vector<int>{2, 998}));
  EXPECT_EQ(counts({1e-30, 1, 1}), (std::vector<int>{1, 499, 500}));  // the first gives one up
  EXPECT_EQ(counts({1e-6, 1, 1e-6, 1}), (std::vector<int>{1, 499, 1, 499}));
}

TEST(Source, OpensGlobsAndLists) {
  const TemporaryFolder folder;
  write_llmc(folder / "s_2.bin", counting(5, 200));
  write_llmc(folder / "s_1.bin", counting(5, 100));
  write_megatron(folder / "m.bin", {counting(3, 300), counting(2, 303)}, 1000);
  const auto bytes = tokenizer::load_tokenizer("bytes");
  const auto s = data::open_source({false, {{folder / "m*"}, {folder / "s_?.bin"}}}, *bytes, 4);
  ASSERT_EQ(s->samples(), 3);
  EXPECT_EQ(sample_of(*s, 0), counting(5, 300));
  EXPECT_EQ(sample_of(*s, 1), counting(5, 100));
  EXPECT_EQ(sample_of(*s, 2), counting(5, 200));
  s->check_ids(305);
  EXPECT_EQ(sample_of(*s, 0), counting(5, 300));
  s->check_ids(203);
  EXPECT_EQ(sample_of(*s, 1), counting(5, 100));
  expect_error(ExitCode::input, {"s_2.bin", "token 4", "id 204", "203"}, [&] { sample_of(*s, 2); });
  const auto open = [&](data::SourceSpec spec) {
    return [&bytes, spec] { data::open_source(spec, *bytes, 4); };
  };
  expect_error(ExitCode::input, {"nothing*"}, open({false, {{folder / "nothing*"}}}));
  expect_error(ExitCode::input, {"gone.bin"}, open({false, {{folder / "gone.bin"}}}));
  expect_error(ExitCode::usage, {"path"}, open({false, {}}));
}

TEST(Source, EncodesText) {
  const TemporaryFolder folder;
  put(folder / "a.txt", "hello world");
  put(folder / "a.jsonl",
      "{\"id\": 1, \"text\": \"ab\", \"meta\": {\"text\": [1, {}]}}\r\n\n{\"text\": "
      "\"\"}\n{\"text\": \"c\\u00e9\"}");
  const auto bytes = tokenizer::load_tokenizer("bytes"), bpe = tokenizer::load_tokenizer(fixture);
  const auto plain = data::open_source({true, {{folder / "a.txt"}}}, *bytes, 10);
  EXPECT_EQ(sample_of(*plain, 0), bytes->encode("hello world"));
  const auto lines = data::open_source({true, {{folder / "a.jsonl"}}}, *bytes, 4);
  EXPECT_EQ(sample_of(*lines, 0), bytes->encode("abc\xC3\xA9"));
  put(folder / "mark.jsonl", "\xEF\xBB\xBF\n\xEF\xBB\xBF{\"text\": \"ab\"}\n");
  EXPECT_EQ(data::open_source({true, {{folder / "mark.jsonl"}}}, *bytes, 1)->tokens(), 2);
  const auto ended = data::open_source({true, {{folder / "a.jsonl"}}}, *bpe, 1);
  Ids want = bpe->encode("ab");
  want.push_back(0);
  for (std::int32_t id : bpe->encode("cé")) want.push_back(id);
  want.push_back(0);
  EXPECT_EQ(ended->tokens(), static_cast<std::int64_t>(want.size()));
  for (std::size_t i = 0; i + 1 < want.size(); ++i)
    EXPECT_EQ(sample_of(*ended, i), (Ids{want[i], want[i + 1]}));
  plain->check_ids(256);
  expect_error(ExitCode::input, {"a.txt", "119", "110"}, [&] { plain->check_ids(110); });
}

TEST(Source, KnowsJsonLinesByNameAndByContent) {
  const TemporaryFolder folder;
  const auto bytes = tokenizer::load_tokenizer("bytes");
  const auto tokens = [&](const std::string& name, const std::string& content) {
    put(folder / name, content);
    return data::open_source({true, {{folder / name}}}, *bytes, 1)->tokens();
  };
  const std::string lines = "{\"text\": \"ab\"}\n{\"text\": \"cd\"}\n";
  for (const char* name : {"a.ndjson", "A.JSONL", "a.jl", "a.jsonlines", "a.json", "a.JSON"}) {
    EXPECT_EQ(tokens(name, lines), 4) << name;
    EXPECT_EQ(tokens(std::string(name) + ".gz", test::gzip(lines)), 4) << name;
    EXPECT_EQ(tokens(std::string(name) + ".ZST", test::zstandard(lines)), 4) << name;
  }
  EXPECT_EQ(tokens("long.json", "{\"text\": \"" + std::string(100000, 'x') + "\"}"), 100000);
  for (const char* name : {"a.txt", "a", "jsonl", "a.jsonl.txt"})
    EXPECT_EQ(tokens(name, lines), std::ssize(lines)) << name;
  EXPECT_EQ(tokens("prose.json", "no JSON"), 7);
  for (const char* whole : {"[{\"text\": \"ab\"}]", "{\n  \"text\": \"ab\"\n}\n"})
    expect_error(ExitCode::input, {"whole.json", "JSON lines", "jq"},
                 [&] { tokens("whole.json", whole); });
  put(folder / "a.jsonl", lines);
  expect_error(ExitCode::input, {"a.jsonl", "JSON lines", "pairs"}, [&] {
    data::each_pair({.source = folder / "a.jsonl", .target = folder / "a.jsonl", .files = {}},
                    [](auto...) {});
  });
}

TEST(Source, RefusesBrokenJsonLines) {
  const TemporaryFolder folder;
  const auto bytes = tokenizer::load_tokenizer("bytes");
  const auto refused = [&](const std::string& line, std::initializer_list<std::string> parts) {
    put(folder / "a.jsonl", "{\"text\": \"fine\"}\n" + line + "\n");
    expect_error(ExitCode::input, parts, [&] {
      data::open_source({true, {{folder / "a.jsonl"}}}, *bytes, 1);
    });
  };
  refused("{\"text\": \"x\"", {"a.jsonl:2", "invalid JSON"});
  refused("{\"text\": \"\xFF\"}", {"a.jsonl:2", "invalid JSON"});
  refused("{\"text\": \"\\ud800\"}", {"a.jsonl:2", "invalid JSON"});
  refused("{\"txt\": \"x\", \"n\": {\"deep\": 1}}",
          {"a.jsonl:2", "no field \"text\"", "'txt', 'n'", "data.train.field", "--field"});
  refused("{\"messages\": [{\"role\": \"user\"}]}", {"'messages'", "chats are not supported"});
  refused("{}", {"a.jsonl:2", "no field \"text\""});
  refused("{\"text\": 1}", {"a.jsonl:2", "not a string"});
  refused("{\"text\": null}", {"a.jsonl:2", "not a string"});
  refused("{\"text\": [\"x\"]}", {"a.jsonl:2", "not a string"});
  refused("{\"text\": {\"text\": \"x\"}}", {"a.jsonl:2", "not a string"});
  refused("{\"text\": \"x\", \"text\": \"y\"}", {"a.jsonl:2", "twice"});
  refused("[\"text\"]", {"a.jsonl:2", "object"});
  refused("\"text\"", {"a.jsonl:2", "object"});
  refused("1", {"a.jsonl:2", "object"});
  refused("{\"a\": " + std::string(200000, '['), {"a.jsonl:2", "invalid JSON"});
  try {
    put(folder / "a.jsonl", "{\"text\": \"" + std::string(5000, 'x'));
    data::encode_file(folder / "a.jsonl", "text", *bytes, [](auto, bool) {});
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_LT(std::string(e.what()).size(), 500u);
  }
  std::mt19937 random(11);
  const std::string good = "{\"n\": [1, {\"text\": 2}], \"text\": \"a\\u00e9\"}\n";
  for (int trial = 0; trial < 1000; ++trial) {
    std::string line = good;
    for (int k = 0; k < 2; ++k)
      line[random() % line.size()] =
          random() % 2 ? "\"{}[]:,\\ 1\n"[random() % 11] : static_cast<char>(random());
    put(folder / "a.jsonl", line);
    try {
      data::encode_file(folder / "a.jsonl", "text", *bytes, [](auto, bool) {});
    } catch (const Error& e) {
      ASSERT_EQ(e.code(), ExitCode::input) << e.what();
    }
  }
}

// ids and labels of sequences [first, first + count) of a batch.
std::pair<Ids, Ids> read(const data::Dataset& batcher, std::int64_t index, std::int64_t first,
                         std::int64_t count, std::size_t elements) {
  Ids ids(elements), labels(elements);
  const BatchFields fields{{Field::ids, ids}, {Field::labels, labels}};
  batcher.fill(index, first, count, fields);
  return {ids, labels};
}

TEST(NextToken, CoversTheStreamInOrder) {
  const data::Source s = source_of({{41, 1}}, 4);  // 10 samples
  const data::NextToken batcher(s, data::Sampler(s.samples(), false, 0), 3, true);
  EXPECT_EQ(read(batcher, 0, 0, 3, 12), std::pair(counting(12), counting(12, 1)));
  EXPECT_EQ(read(batcher, 2, 1, 2, 8),
            std::pair(counting(8, 28), counting(8, 29)));  // positions 7 and 8
  // Positions 9, and 0 and 1 of the next epoch.
  EXPECT_EQ(read(batcher, 3, 0, 3, 12).first, (Ids{36, 37, 38, 39, 0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_THROW(read(batcher, 0, 2, 2, 8), Error);
  EXPECT_THROW(read(batcher, 0, 0, 3, 8), Error);
  EXPECT_THROW(data::NextToken(s, data::Sampler(9, false, 0), 3, true), Error);
  const data::NextToken once(s, data::Sampler(s.samples(), false, 0), 3, false);
  EXPECT_EQ(once.batches(), 4);
  EXPECT_EQ(once.batch(2).sequences, 3);
  EXPECT_EQ(once.batch(3).sequences, 1);
  EXPECT_EQ(batcher.batch(3).sequences, 3);
}

TEST(NextToken, PartsMakeTheWholeAndAnEpochHoldsEachSampleOnce) {
  const data::Source s = source_of({{41, 1}, {21, 1}}, 2);  // 20 + 10 samples
  const data::NextToken batcher(s, data::Sampler(s.samples(), true, 8), 6, true);
  std::multiset<std::int32_t> seen;
  for (std::int64_t step = 0; step < 5; ++step) {
    const auto [whole, whole_labels] = read(batcher, step, 0, 6, 12);
    Ids parts, part_labels;
    for (std::int64_t first = 0; first < 6; first += 2) {
      const auto [part, labels] = read(batcher, step, first, 2, 4);
      parts.insert(parts.end(), part.begin(), part.end());
      part_labels.insert(part_labels.end(), labels.begin(), labels.end());
    }
    EXPECT_EQ(parts, whole);
    EXPECT_EQ(part_labels, whole_labels);
    for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(whole_labels[i], whole[i] + 1);
    for (std::size_t i = 0; i < 12; i += 2) seen.insert(whole[i]);
  }
  EXPECT_EQ(seen.size(), 30u);
  EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), 30u);
}

// ids and labels that a loader gives, padding included.
std::pair<Ids, Ids> loaded(data::DataLoader& loader, std::int64_t index, std::int64_t round = 0) {
  const Batch& batch = loader.load(index, round);
  const auto copy = [&](Field field) {
    return Ids(batch.fields.at(field).begin(), batch.fields.at(field).end());
  };
  return {copy(Field::ids), copy(Field::labels)};
}

data::DataLoader::RankShape part(std::int64_t sequences, std::int64_t width) {
  return {sequences, {{Field::ids, width}, {Field::labels, width}}};
}

TEST(DataLoader, FieldsThatADatasetDoesNotKnowAreThoseOfPadding) {
  data::Source s = source_of({{401, 1}}, 4);
  const data::NextToken dataset(s, data::Sampler(s.samples(), true, 8), 2, true);
  data::DataLoader::RankShape shape = part(2, 4);
  shape.widths[Field::sentence_labels] = 1;
  data::DataLoader loader(dataset, {shape}, {});
  const auto labels = loader.load(0).fields.at(Field::sentence_labels);
  EXPECT_EQ(Ids(labels.begin(), labels.end()), (Ids{-1, -1}));
}

TEST(DataLoader, GivesWhatTheDatasetGives) {
  data::Source s = source_of({{401, 1}}, 4);
  const data::NextToken dataset(s, data::Sampler(s.samples(), true, 8), 6, true);
  {
    data::DataLoader loader(dataset, {part(3, 4)}, {.rank = 1, .ranks = 2});
    for (std::int64_t step : {0, 1, 2, 3, 3, 10, 11, 0})
      EXPECT_EQ(loaded(loader, step), read(dataset, step, 3, 3, 12)) << step;
  }
  std::vector<data::Source::Group> groups(1);
  groups[0].name = "late";
  groups[0].streams.push_back(
      std::make_unique<data::MemoryTokens>("late", Ids{0, 1, 2, 3, 4, 5, 6, 99, 8}));
  data::Source bad(std::move(groups), 2);
  try {
    bad.check_ids(50);
    ADD_FAILURE() << "text is checked at once";
  } catch (const Error&) {
  }
  const data::NextToken in_order(bad, data::Sampler(bad.samples(), false, 0), 1, true);
  data::DataLoader loader(in_order, {part(1, 2)}, {});
  EXPECT_EQ(loaded(loader, 2).first, (Ids{4, 5}));
  expect_error(ExitCode::input, {"late", "token 7", "99"}, [&] { loader.load(3); });
  EXPECT_EQ(loaded(loader, 0).second, (Ids{1, 2}));
}

// On any number of ranks, the real sequences of all rounds are the batch, in the order of `first`;
// what is left of the parts is padding that no loss counts.
TEST(DataLoader, RanksShareOutABatchAndPadIt) {
  const data::Source s = source_of({{41, 1}}, 4);  // 10 samples: a batch of 7 and one of 3
  const data::NextToken dataset(s, data::Sampler(s.samples(), false, 0), 7, false);
  for (const std::int64_t ranks : {1, 2, 3, 5})
    for (const std::int64_t size : {1, 2, 7})
      for (std::int64_t index = 0; index < 2; ++index) {
        const std::int64_t sequences = index == 0 ? 7 : 3;
        std::map<std::int64_t, std::pair<Ids, Ids>> by_first;
        Ids ids, labels;
        for (std::int64_t rank = 0; rank < ranks; ++rank) {
          data::DataLoader loader(dataset, {part(size, 4)},
                                  {.rank = rank, .ranks = ranks, .batches = 2});
          EXPECT_EQ(loader.rounds(index), ceil_div(sequences, size * ranks));
          for (std::int64_t round = 0; round < loader.rounds(index); ++round) {
            auto [in, out] = loaded(loader, index, round);
            const Batch& batch = loader.load(index, round);
            ASSERT_EQ(std::ssize(in), 4 * size);
            for (std::int64_t i = 4 * batch.sequences; i < 4 * size; ++i) {
              EXPECT_EQ(in[static_cast<std::size_t>(i)], 0);
              EXPECT_EQ(out[static_cast<std::size_t>(i)], -1);
            }
            in.resize(static_cast<std::size_t>(4 * batch.sequences)), out.resize(in.size());
            EXPECT_TRUE(by_first.emplace(batch.first, std::pair(in, out)).second);
          }
        }
        for (const auto& [first, rows] : by_first) {
          EXPECT_TRUE(rows.first.empty() || std::ssize(ids) == 4 * first);
          ids.insert(ids.end(), rows.first.begin(), rows.first.end());
          labels.insert(labels.end(), rows.second.begin(), rows.second.end());
        }
        EXPECT_EQ(std::pair(ids, labels),
                  read(dataset, index, 0, sequences, static_cast<std::size_t>(4 * sequences)))
            << ranks << " ranks of " << size;
      }
}

// A dataset of two documents a sequence, the second two positions long, and padding at the end of
// sequences of eight; it remembers which batches were read.
class ReadBatches final : public data::Dataset {
 public:
  GlobalBatch batch(std::int64_t) const override { return {0, 5}; }
  std::int64_t batches() const override { return 3; }
  void fill(std::int64_t index, std::int64_t first, std::int64_t count,
            const BatchFields& fields) const override {
    const std::lock_guard lock(mutex_);
    read_.insert(index);
    for (std::int64_t i = 0; i < count; ++i)
      for (const auto& [field, values] : fields) {
        const auto sequence = static_cast<std::int32_t>(first + i);
        if (info_of(field).width == FieldWidth::one)
          values[static_cast<std::size_t>(i)] = sequence;
        else
          for (std::int32_t t = 0; t < 8; ++t)
            values[static_cast<std::size_t>(8 * i + t)] = field == Field::mask ? (t < 4   ? 0
                                                                                  : t < 6 ? 1
                                                                                          : -1)
                                                                               : 10 * sequence + t;
      }
  }
  std::set<std::int64_t> read() const {
    const std::lock_guard lock(mutex_);
    return read_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::set<std::int64_t> read_;
};

Ids field_of(const Batch& batch, Field field) {
  const auto values = batch.fields.at(field);
  return {values.begin(), values.end()};
}

TEST(DataLoader, TakesRoundsInTurnAndReadsNothingBehindTheLastBatch) {
  const ReadBatches dataset;
  for (const std::int64_t ranks : {1, 2, 3})
    for (const std::int64_t rank : {std::int64_t{0}, ranks - 1}) {
      data::DataLoader loader(dataset, {part(1, 8)}, {.rank = rank, .ranks = ranks});
      for (std::int64_t round = 0; round < loader.rounds(0); ++round)
        EXPECT_EQ(loader.load(0, round).first, round * ranks + rank);
    }
  for (const std::int64_t batches : {0, 1, 2}) {
    const ReadBatches fresh;
    {
      data::DataLoader loader(fresh, {part(5, 8)}, {.batches = batches});
      for (std::int64_t index = 0; index < std::max<std::int64_t>(batches, 1); ++index)
        loader.load(index);
    }
    EXPECT_EQ(*fresh.read().rbegin(), batches == 0 ? 1 : batches - 1) << batches;
  }
}

TEST(DataLoader, CountsPositionsWithinDocuments) {
  const ReadBatches dataset;
  data::DataLoader::RankShape shape = part(2, 8);
  shape.widths[Field::mask] = shape.widths[Field::positions] = 8;
  data::DataLoader loader(dataset, {shape}, {.rank = 1, .ranks = 2});
  const Ids one{0, 1, 2, 3, 0, 1, 0, 0};
  Ids both = one;
  both.insert(both.end(), one.begin(), one.end());
  EXPECT_EQ(field_of(loader.load(0), Field::positions), both);
  EXPECT_EQ(field_of(loader.load(0, 1), Field::positions), Ids(16, 0));  // padding alone
}

// Two ranks share sequences of eight: chunks 0 and 3 of one, 1 and 2 of the other, those of both
// sequences one after another; masks are whole, and a label of a sequence counts once.
TEST(DataLoader, SharesOutThePositionsOfASequence) {
  const ReadBatches dataset;
  const auto load = [&](int rank, Field field, std::int64_t together = 2) {
    data::DataLoader::RankShape shape = part(2, 8);
    for (const Field f : {Field::mask, Field::token_labels}) shape.widths[f] = 8;
    for (const Field f : {Field::sentence_labels, Field::numbers, Field::positives, Field::prefix})
      shape.widths[f] = 1;
    shape.share = {2, rank}, shape.together = together;
    data::DataLoader loader(dataset, {shape}, {});
    return field_of(loader.load(0), field);
  };
  for (const Field field : {Field::ids, Field::labels, Field::token_labels}) {
    EXPECT_EQ(load(0, field), (Ids{0, 1, 10, 11, 6, 7, 16, 17}));
    EXPECT_EQ(load(1, field), (Ids{2, 3, 12, 13, 4, 5, 14, 15}));
    EXPECT_EQ(load(0, field, 1), (Ids{0, 1, 6, 7, 10, 11, 16, 17}));
  }
  for (const Field field : {Field::sentence_labels, Field::numbers, Field::positives}) {
    EXPECT_EQ(load(0, field), (Ids{0, 1}));
    EXPECT_EQ(load(1, field), Ids(2, info_of(field).padding));
  }
  for (const int rank : {0, 1}) {
    EXPECT_EQ(load(rank, Field::prefix), (Ids{0, 1}));
    EXPECT_EQ(load(rank, Field::mask), (Ids{0, 0, 0, 0, 1, 1, -1, -1, 0, 0, 0, 0, 1, 1, -1, -1}));
  }
}

TEST(DataLoader, UsesTheMemoryItIsGiven) {
  const data::Source s = source_of({{41, 1}}, 4);
  const data::NextToken dataset(s, data::Sampler(s.samples(), false, 0), 5, true);
  Ids ids(20), labels(20), more_ids(20), more_labels(20);
  const std::vector<BatchFields> memory{{{Field::ids, ids}, {Field::labels, labels}},
                                        {{Field::ids, more_ids}, {Field::labels, more_labels}}};
  data::DataLoader loader(dataset, {part(5, 4)}, {}, memory);
  for (std::int64_t index : {0, 2}) {  // by turns: two batches are valid
    const Batch &one = loader.load(index), &other = loader.load(index + 1);
    EXPECT_EQ(one.fields.at(Field::ids).data(), ids.data());
    EXPECT_EQ(other.fields.at(Field::ids).data(), more_ids.data());
    EXPECT_EQ(std::pair(ids, labels), read(dataset, index, 0, 5, 20));
    EXPECT_EQ(std::pair(more_ids, more_labels), read(dataset, index + 1, 0, 5, 20));
  }
  EXPECT_THROW(data::DataLoader(dataset, {part(6, 4)}, {}, memory), Error);
}

TEST(Prepare, MakesWhatTheTextSourceReads) {
  const TemporaryFolder folder;
  put(folder / "a.jsonl", "{\"body\": \"one two\"}\n{\"body\": \"\"}\n{\"body\": \"three\"}\n");
  std::string text;
  std::mt19937 random(4);
  while (text.size() < 9000000)
    text += "words of 17 kinds, it's "[random() % 24], text += random() % 50 ? "" : "  \n";
  put(folder / "big.txt", text);  // more than two blocks of reading
  const auto bpe = tokenizer::load_tokenizer(fixture);
  data::PrepareOptions options{{folder / "a.jsonl", folder / "big.txt"}, fixture, folder / "o.bin"};
  options.append_eod = true;
  options.field = "body";
  const data::Prepared made = data::prepare_tokens(options);
  EXPECT_EQ(made.documents, 3);
  Ids want;
  for (const std::string& document : {std::string("one two"), std::string("three"), text}) {
    const Ids ids = bpe->encode(document);
    want.insert(want.end(), ids.begin(), ids.end());
    want.push_back(*bpe->end_of_document());
  }
  const data::TokenFile file(folder / "o.bin");
  EXPECT_EQ(made.tokens, file.size());
  EXPECT_TRUE(all_of(file) == want);
  EXPECT_EQ(data::check_all_ids(file, 600), *std::max_element(want.begin(), want.end()));
  expect_error(ExitCode::input, {"o.bin", "token", "100"}, [&] { data::check_all_ids(file, 100); });
  options.output = folder / "m.bin";
  options.format = data::TokenFormat::megatron;
  data::prepare_tokens(options);
  const data::TokenFile pair(folder / "m");
  EXPECT_EQ(pair.info().documents, 3);
  EXPECT_TRUE(all_of(pair) == want);
  const std::string llama = std::string(TFM_SOURCE_DIR) + "/tests/fixtures/tokenizers/llama2.json";
  put(folder / "two.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
  for (const auto add : {config::AddBegin::automatic, config::AddBegin::off}) {
    data::prepare_tokens({.inputs = {folder / "two.jsonl"},
                          .tokenizer = llama,
                          .output = folder / "l.bin",
                          .add_begin = add});
    const Ids got = all_of(data::TokenFile(folder / "l.bin"));
    EXPECT_EQ(std::ranges::count(got, 1), add == config::AddBegin::off ? 0 : 2);
    EXPECT_EQ(got[0] == 1, add != config::AddBegin::off);
  }
  put(folder / "s.txt", "hi");
  options = {{folder / "s.txt"}, "bytes", folder / "b.bin"};
  options.append_eod = true;
  data::prepare_tokens(options);
  EXPECT_EQ(all_of(data::TokenFile(folder / "b.bin")), (Ids{'h', 'i', 257}));
  options.inputs = {folder / "s.txt", folder / "missing.txt"};
  expect_error(ExitCode::input, {"missing.txt"}, [&] { data::prepare_tokens(options); });
  EXPECT_EQ(folder.files(), 4u + 5 + 4);  // inputs, ids, whose they are
  EXPECT_EQ(all_of(data::TokenFile(folder / "b.bin")).size(), 3u);
}

// What is said of a file of ids beside it, and ids that stand around documents.
TEST(Prepare, WritesTheIdsAroundDocumentsAndWhatTheyAre) {
  const TemporaryFolder folder;
  const std::string lines = put(folder / "a.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"c\"}\n");
  for (const auto format : {data::TokenFormat::llmc, data::TokenFormat::megatron})
    for (const bool begins : {false, true})
      for (const bool ends : {false, true}) {
        const data::Prepared made = data::prepare_tokens(
            {.inputs = {lines},
             .tokenizer = "bytes",
             .output = folder / "o.bin",
             .format = format,
             .append_eod = ends,
             .add_begin = begins ? config::AddBegin::on : config::AddBegin::automatic});
        Ids want;
        for (const std::string text : {"ab", "c"}) {
          if (begins) want.push_back(256);
          want.insert(want.end(), text.begin(), text.end());
          if (ends) want.push_back(257);
        }
        const data::TokenFile file(folder / "o.bin");
        EXPECT_EQ(all_of(file), want);
        EXPECT_EQ(made.tokens, std::ssize(want));
        EXPECT_EQ(made.documents, 2);
        const auto origin = data::read_origin(file);
        ASSERT_TRUE(origin);
        EXPECT_EQ(origin->tokenizer, "bytes");
        EXPECT_EQ(origin->tokens, std::ssize(want));
        EXPECT_EQ(origin->documents, 2);
        EXPECT_EQ(origin->document_end, ends ? std::optional(257) : std::nullopt);
      }
  // Control characters alone, of which BERT's tokenizer makes no ids.
  put(folder / "none.txt", "\x01\x02");
  expect_error(ExitCode::input, {"none.txt", "no text"}, [&] {
    data::prepare_tokens(
        {.inputs = {folder / "none.txt"},
         .tokenizer = std::string(TFM_SOURCE_DIR) + "/tests/fixtures/tokenizers/bert.json",
         .output = folder / "n.bin"});
  });
}

TEST(Prepare, RefusesInputWithoutText) {
  const TemporaryFolder folder;
  put(folder / "none.txt", "");
  put(folder / "none.jsonl", "\n{\"text\": \"\"}\n");
  for (const auto format : {data::TokenFormat::llmc, data::TokenFormat::megatron})
    for (const bool append_eod : {false, true}) {
      data::PrepareOptions options{
          {folder / "none.txt", folder / "none.jsonl"}, "bytes", folder / "o.bin"};
      options.format = format;
      options.append_eod = append_eod;
      expect_error(ExitCode::input, {"none.txt", "no text"},
                   [&] { data::prepare_tokens(options); });
      EXPECT_EQ(folder.files(), 2u);  // the two inputs
    }
}

}  // namespace
}  // namespace tfm
