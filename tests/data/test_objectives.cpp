// Sentence pairs, masked tokens and span corruption: what a batch holds, and that it depends on
// nothing but seed and index.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <set>

#include "data/batch_shapes.h"
#include "data/denoise.h"
#include "data/masked_lm.h"
#include "data/objective.h"
#include "data/pairs.h"
#include "data/prefix_lm.h"
#include "data/prepare.h"
#include "data/run_data.h"
#include "data/samples_text.h"
#include "data/source_files.h"
#include "data/span_corruption.h"
#include "data/special_ids.h"
#include "data/token_origin.h"
#include "support/compressed.h"
#include "support/data_files.h"

namespace tfm {
namespace {

using test::counting;
using test::expect_error;
using test::Ids;
using test::put;
using test::TemporaryFolder;

const std::unique_ptr<tokenizer::Tokenizer> kBytes = tokenizer::load_tokenizer("bytes");

// The named fields of part of a batch; the sizes are `count` times the widths.
struct Read {
  std::map<Field, Ids> data;
  Read(const data::Dataset& b, std::int64_t index, std::int64_t first, std::int64_t count,
       const std::map<Field, std::int64_t>& widths) {
    BatchFields fields;
    for (const auto& [field, width] : widths) {
      data[field].resize(static_cast<std::size_t>(count * width), -99);
      fields[field] = data[field];
    }
    b.fill(index, first, count, fields);
  }
  const Ids& operator[](Field field) const { return data.at(field); }
};

std::map<Field, std::int64_t> pair_widths(std::int64_t length) {
  return {{Field::source_ids, length},
          {Field::source_mask, length},
          {Field::ids, length},
          {Field::mask, length},
          {Field::labels, length}};
}

TEST(Pairs, RowsOfABatch) {
  const TemporaryFolder folder;
  const data::PairSpec spec{
      put(folder / "a", "ab\n\nxyzuvw\n"), put(folder / "b", "C\nDE\r\nFGH\n"), {}};
  const data::Pairs pairs({spec}, *kBytes, {{4, 8}, {6, 8}}, 260, false, 1);
  EXPECT_EQ(pairs.pairs(), 3);
  EXPECT_EQ(pairs.cut(), 1);
  EXPECT_EQ(pairs.batches(), 2);
  EXPECT_EQ(pairs.batch(0).shape, 0u);
  EXPECT_EQ(pairs.batch(0).sequences, 2);
  EXPECT_EQ(pairs.batch(1).shape, 1u);
  const Read r(pairs, 0, 0, 2, pair_widths(4));
  EXPECT_EQ(r[Field::source_ids], (Ids{'a', 'b', 257, 0, 257, 0, 0, 0}));
  EXPECT_EQ(r[Field::source_mask], (Ids{0, 0, 0, -1, 0, -1, -1, -1}));
  EXPECT_EQ(r[Field::ids], (Ids{256, 'C', 0, 0, 256, 'D', 'E', 0}));
  EXPECT_EQ(r[Field::mask], (Ids{0, 0, -1, -1, 0, 0, 0, -1}));
  EXPECT_EQ(r[Field::labels], (Ids{'C', 257, -1, -1, 'D', 'E', 257, -1}));
  EXPECT_EQ(Read(pairs, 1, 0, 1, pair_widths(6))[Field::source_ids],
            (Ids{'x', 'y', 'z', 'u', 'v', 257}));
  const data::Pairs started({spec}, *kBytes, {{4, 8}, {6, 8}}, 260, false, 1,
                            9);  // with a begin of the model's own
  EXPECT_EQ(Read(started, 0, 0, 1, pair_widths(4))[Field::ids], (Ids{9, 'C', 0, 0}));
}

TEST(Pairs, TheLongerSideDecidesTheShape) {
  const TemporaryFolder folder;  // a side of 3 bytes takes 4 places, with its end
  const data::PairSpec spec{
      put(folder / "a", "abc\na\nabcd\nab\n"), put(folder / "b", "A\nABCD\nA\nABC\n"), {}};
  const data::Pairs pairs({spec}, *kBytes, {{4, 2}, {6, 2}}, 260, false, 1);
  ASSERT_EQ(pairs.batches(), 2);
  EXPECT_EQ(pairs.batch(0).shape, 1u);
  EXPECT_EQ(pairs.items_of(0), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(pairs.batch(1).shape, 0u);
  EXPECT_EQ(pairs.items_of(1), (std::vector<std::int64_t>{0, 3}));
  const Read r(pairs, 0, 0, 2, pair_widths(6));
  EXPECT_EQ(r[Field::labels], (Ids{'A', 'B', 'C', 'D', 257, -1, 'A', 257, -1, -1, -1, -1}));
}

TEST(Pairs, EachSideIsCutByItsOwnModel) {
  const TemporaryFolder folder;
  const auto marian =
      tokenizer::load_tokenizer(std::string(TFM_SOURCE_DIR) + "/tests/fixtures/marian");
  const std::string line = "tokens and their ids", file = put(folder / "a", line + "\n");
  const data::Pairs pairs({{file, file, {}}}, *marian, {{40, 1}}, marian->vocab_size(), false, 1);
  const Read r(pairs, 0, 0, 1, pair_widths(40));
  Ids source = marian->encode(line), target = marian->target().encode(line);
  EXPECT_NE(source, target);
  source.push_back(0), target.push_back(0);
  EXPECT_TRUE(std::equal(source.begin(), source.end(), r[Field::source_ids].begin()));
  EXPECT_TRUE(std::equal(target.begin(), target.end(), r[Field::labels].begin()));
  EXPECT_EQ(r[Field::ids][0], marian->special_ids().pad);
}

TEST(Pairs, AnEpochHoldsEachPairOnceAndPartsMakeTheWhole) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 100; ++i)
    text += std::string(static_cast<std::size_t>(1 + i * 7 % 13), 'a') + std::to_string(i) + "\t" +
            std::to_string(i) + "\n";
  const data::PairSpec spec{{}, {}, {put(folder / "a.tsv", text)}};
  const std::vector<data::PairLength> lengths{{8, 6}, {12, 4}, {16, 3}};
  const data::Pairs pairs({spec}, *kBytes, lengths, 260, true, 7),
      same({spec}, *kBytes, lengths, 260, true, 7), other({spec}, *kBytes, lengths, 260, true, 8);
  EXPECT_EQ(pairs.batches(), other.batches());
  Ids order[2];
  for (std::int64_t epoch : {0, 1}) {
    std::multiset<Ids> seen;
    for (std::int64_t i = epoch * pairs.batches(); i < (epoch + 1) * pairs.batches(); ++i) {
      const auto [shape, n] = pairs.batch(i);
      const std::int64_t width = lengths[shape].length;
      const Read whole(pairs, i, 0, n, pair_widths(width)),
          again(same, i, 0, n, pair_widths(width));
      EXPECT_EQ(whole.data, again.data);
      for (std::int64_t s = 0; s < n; ++s) {
        const Read one(pairs, i, s, 1, pair_widths(width));
        EXPECT_TRUE(std::equal(one[Field::ids].begin(), one[Field::ids].end(),
                               whole[Field::ids].begin() + s * width));
        Ids target = one[Field::labels];
        std::erase(target, -1);
        seen.insert(target);
        order[epoch].push_back(target[0] + 256 * target[1]);
      }
    }
    EXPECT_EQ(seen.size(), 100u);
    EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), 100u);
  }
  EXPECT_NE(order[0], order[1]);
}

// Each epoch has other tokens of the same sentences, all of which fit; parts make the whole.
TEST(Pairs, BpeDropoutDrawsTokensAnew) {
  const TemporaryFolder folder;
  const auto bpe =
      tokenizer::load_tokenizer(std::string(TFM_SOURCE_DIR) + "/tests/fixtures/bpe600");
  const std::vector<std::string> lines{"the tokens of the text", "and then", "the first sentence",
                                       "something else that is there", "a"};
  std::string text;
  for (const std::string& line : lines) text += line + "\t" + line + ".\n";
  const data::PairSpec spec{{}, {}, {put(folder / "a.tsv", text)}};
  const std::vector<data::PairLength> lengths{{8, 2}, {16, 2}, {24, 2}};
  const auto make = [&](double dropout) {
    return data::Pairs({spec}, *bpe, lengths, 600, true, 7, -1, 0, {}, dropout);
  };
  const data::Pairs pairs = make(0.4), same = make(0.4), usual = make(0);
  std::map<std::string, std::set<Ids>> seen;
  for (std::int64_t i = 0; i < 20 * pairs.batches(); ++i) {
    const auto [shape, n] = pairs.batch(i);
    const std::int64_t width = lengths[shape].length;
    const Read whole(pairs, i, 0, n, pair_widths(width)), again(same, i, 0, n, pair_widths(width));
    EXPECT_EQ(whole.data, again.data);
    for (std::int64_t s = 0; s < n; ++s) {
      const Read one(pairs, i, s, 1, pair_widths(width));
      EXPECT_TRUE(std::equal(one[Field::source_ids].begin(), one[Field::source_ids].end(),
                             whole[Field::source_ids].begin() + s * width));
      Ids source, target;
      for (std::int64_t t = 0; t < width; ++t)
        if (one[Field::source_mask][static_cast<std::size_t>(t)] == 0)
          source.push_back(one[Field::source_ids][static_cast<std::size_t>(t)]);
      for (const std::int32_t id : one[Field::labels])
        if (id >= 0) target.push_back(id);
      ASSERT_EQ(source.back(), 0);
      ASSERT_EQ(target.back(), 0);
      source.pop_back(), target.pop_back();
      const std::string line = bpe->decode(source);
      EXPECT_EQ(bpe->decode(target), line + ".");
      seen[line].insert(source);
    }
  }
  EXPECT_EQ(seen.size(), lines.size());
  for (const auto& [line, tokens] : seen) {
    EXPECT_TRUE(std::ranges::find(lines, line) != lines.end()) << line;
    EXPECT_GE(tokens.size(), line.size() > 4 ? 10u : 1u) << line;
  }
  EXPECT_EQ(pairs.tokens(), usual.tokens());
}

TEST(Pairs, TasksAreMixedBySharesWithTheirPrefixes) {
  const TemporaryFolder folder;
  std::string many, few;
  for (int i = 0; i < 900; ++i) many += "m\tM\n";
  for (int i = 0; i < 100; ++i) few += "f\tF\n";
  const std::vector<data::PairSpec> specs{
      {{}, {}, {put(folder / "many", many)}, "to M: "},
      {put(folder / "f", "f\nf\n"), put(folder / "F", "F\nF\n"), {}, "to F: "},
      {{}, {}, {put(folder / "few", few)}}};
  const auto counted = [&](const std::optional<data::PairShares>& shares) {
    const data::Pairs pairs(specs, *kBytes, {{8, 10}}, 260, true, 1, -1, 0, shares);
    std::map<std::string, std::int64_t> times;
    for (std::int64_t i = 0; i < pairs.batches(); ++i)
      for (std::int64_t row = 0; row < pairs.batch(i).sequences; ++row) {
        const Read r(pairs, i, row, 1, pair_widths(8));
        Ids source = r[Field::source_ids];
        source.erase(std::ranges::find(source, tokenizer::ByteSpecials::end), source.end());
        ++times[kBytes->decode(source) + " " + static_cast<char>(r[Field::labels][0])];
      }
    return times;
  };
  using Times = std::map<std::string, std::int64_t>;
  EXPECT_EQ(counted({}), (Times{{"f F", 100}, {"to F: f F", 2}, {"to M: m M", 900}}));
  EXPECT_EQ(counted(data::PairShares{.weights = {5, 2, 3}}),
            (Times{{"f F", 600}, {"to F: f F", 400}, {"to M: m M", 1000}}));
  EXPECT_EQ(counted(data::PairShares{.temperature = 2})["f F"], 484)
      << "10 of 30 + 1.4 + 10, rounded to thousandths, of 2000";
  EXPECT_EQ(counted(data::PairShares{.max_examples = 100}),
            (Times{{"f F", 990}, {"to F: f F", 20}, {"to M: m M", 990}}));
}

// Each of the keys that mix files does so without the others.
TEST(Pairs, EveryKeyOfAMixtureCounts) {
  const TemporaryFolder folder;
  std::string many;
  for (int i = 0; i < 90; ++i) many += "m\tM\n";
  config::Config c;
  c.model.family = config::Family::encoder_decoder;
  c.model.vocab_size = 260;
  c.train.seq_len = 8, c.train.global_batch_size = 10;
  c.data.train.type = "pairs";
  c.data.train.paths = {{put(folder / "many.tsv", many)}, {put(folder / "few.tsv", "f\tF\n")}};
  const auto few_of_all = [&](const config::SourceConfig& source) {
    data::Opening o{c, source, *kBytes, true};
    const auto pairs = data::objective_of(source).open(o);
    double few = 0, all = 0;
    for (std::int64_t i = 0; i < 40; ++i)
      for (std::int64_t row = 0; row < pairs->batch(i).sequences; ++row, ++all)
        few += Read(*pairs, i, row, 1, pair_widths(8))[Field::labels][0] == 'F';
    return few / all;
  };
  config::SourceConfig plain = c.data.train, capped = plain, warm = plain, weighted = plain;
  capped.max_examples = 1;
  warm.temperature = 2;
  weighted.weighted = true;
  for (config::SourcePath& p : weighted.paths) p.weight = 1;
  EXPECT_LT(few_of_all(plain), 0.03);
  EXPECT_NEAR(few_of_all(capped), 0.5, 0.01);
  EXPECT_NEAR(few_of_all(warm), 1 / (1 + std::sqrt(90.0)), 0.01);
  EXPECT_NEAR(few_of_all(weighted), 0.5, 0.01);
}

TEST(Pairs, SidesMayHaveVocabulariesOfTheirOwn) {
  const TemporaryFolder folder;
  const std::string fixtures = std::string(TFM_SOURCE_DIR) + "/tests/fixtures/tokenizers/",
                    lines = put(folder / "a", "one two\n");
  const auto two = tokenizer::load_tokenizer("bytes", fixtures + "t5.json");
  const auto t5 = tokenizer::load_tokenizer(fixtures + "t5.json");
  const data::Pairs pairs({{lines, lines, {}}}, *two, {{12, 1}}, 260, false, 1, -1, 512);
  const Read r(pairs, 0, 0, 1, pair_widths(12));
  // Files that take the place of one side's are told apart.
  const auto print = [](const tokenizer::Tokenizer& t) { return data::fingerprint_of_sides(t); };
  const auto swapped = tokenizer::load_tokenizer(fixtures + "t5.json", "bytes");
  EXPECT_EQ(print(*two), print(*t5) + print(*tokenizer::load_tokenizer("bytes")));
  EXPECT_NE(print(*two), print(*swapped));
  Ids source = t5->encode("one two");
  source.push_back(1);
  EXPECT_TRUE(std::equal(source.begin(), source.end(), r[Field::source_ids].begin()));
  EXPECT_EQ(r[Field::ids][0], tokenizer::ByteSpecials::begin);
  EXPECT_EQ(r[Field::labels][7], tokenizer::ByteSpecials::end);
  expect_error(ExitCode::input, {"a:1", "model.source_vocab_size is 100"}, [&] {
    data::Pairs({{lines, lines, {}}}, *two, {{12, 1}}, 260, false, 1, -1, 100);
  });
}

// The ids that begin and end sentences, of each fixture, and those that a key gives.
TEST(Pairs, SentencesBeginAndEndWithTheIdsOfTheirTokenizer) {
  const std::string fixtures = std::string(TFM_SOURCE_DIR) + "/tests/fixtures/tokenizers/";
  const auto ids_of = [](const tokenizer::Tokenizer& t, std::int64_t given) {
    const data::SentenceIds ids = data::sentence_ids(t, given);
    return Ids{ids.begin, ids.end, ids.source_end};
  };
  for (const auto& [name, expected] : {std::pair{"bytes", Ids{256, 257, 257}},
                                       {"bart.json", {0, 2, 2}},     // <s>, </s>
                                       {"bert.json", {2, 3, 3}},     // [CLS], [SEP]
                                       {"t5.json", {0, 1, 1}},       // <pad>, </s>
                                       {"gpt2.json", {0, 0, 0}}}) {  // <|endoftext|>
    const auto t =
        tokenizer::load_tokenizer(*name == 'b' && name[1] == 'y' ? name : fixtures + name);
    EXPECT_EQ(ids_of(*t, -1), expected) << name;
    for (const std::int32_t given : {0, 7})
      EXPECT_EQ(ids_of(*t, given), (Ids{given, expected[1], expected[2]})) << name;
  }
  // Of two tokenizers a target has the ids of its own.
  const auto two = tokenizer::load_tokenizer("bytes", fixtures + "t5.json"),
             swapped = tokenizer::load_tokenizer(fixtures + "t5.json", "bytes");
  EXPECT_EQ(ids_of(*two, -1), (Ids{256, 257, 1}));
  EXPECT_EQ(ids_of(*swapped, -1), (Ids{0, 1, 257}));
  EXPECT_EQ(two->vocab_size(), 510);
  EXPECT_EQ(two->target().vocab_size(), 256);
  EXPECT_TRUE(two->knows(256) && !two->knows(400));  // decodes what the model writes
  EXPECT_EQ(two->decode(Ids{'a', 'b'}), "ab");
  EXPECT_EQ(two->special_ids().end, 1);
  EXPECT_EQ(two->encode_with_specials("a").back(), 1);
  EXPECT_EQ(two->end_of_document(), 1);
}

// A batch of train.global_batch_tokens tokens, for lengths that grow by 8 or a quarter.
TEST(Pairs, ShapesHoldTheTokensOfABatch) {
  config::Config c;
  c.model.family = config::Family::encoder_decoder;
  c.data.train.type = "pairs";
  c.train.seq_len = 512;
  c.train.global_batch_tokens = 1000;
  std::vector<std::int64_t> lengths;
  for (const nn::BatchShape& shape : data::batch_shapes(c)) {
    lengths.push_back(shape.length);
    EXPECT_EQ(shape.source_length, shape.length);
    EXPECT_EQ(shape.sequences, 1000 / shape.length);
  }
  EXPECT_EQ(lengths, (std::vector<std::int64_t>{8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 120, 144,
                                                176, 216, 264, 328, 408, 504, 512}));
  c.train.seq_len = 20, c.train.global_batch_tokens = 16;
  std::vector<std::pair<std::int64_t, std::int64_t>> few;
  for (const nn::BatchShape& s : data::batch_shapes(c)) few.emplace_back(s.length, s.sequences);
  EXPECT_EQ(few, (std::vector<std::pair<std::int64_t, std::int64_t>>{{8, 2}, {16, 1}, {20, 1}}));
  c.train.global_batch_tokens = 0, c.train.global_batch_size = 6;
  ASSERT_EQ(data::batch_shapes(c).size(), 1u);
  EXPECT_EQ(data::batch_shapes(c)[0].sequences, 6);
}

// Each data rank has the sequences of 1,024 tokens, one at least, its part of a batch at most.
TEST(Objectives, AForwardPassHasAboutAThousandTokens) {
  config::Config c;
  c.data.train.type = "text";
  const auto sequences = [&](std::int64_t length, std::int64_t batch, comm::Layout layout) {
    c.train.seq_len = length, c.train.global_batch_size = batch;
    return data::forward_shape(c, layout).sequences;
  };
  EXPECT_EQ(sequences(256, 100, {}), 4);
  EXPECT_EQ(sequences(300, 100, {}), 3);
  EXPECT_EQ(sequences(1024, 100, {}), 1);
  EXPECT_EQ(sequences(2048, 100, {}), 1);
  EXPECT_EQ(sequences(8, 6, {}), 6);
  EXPECT_EQ(sequences(8, 6, {2, 1}), 3);
  EXPECT_EQ(sequences(8, 7, {2, 1}), 4);
  EXPECT_EQ(sequences(8, 6, {1, 2}), 6);
  EXPECT_EQ(sequences(8, 3, {4, 1}), 1);
}

// Validation data is read in its order, each pair once, whatever training does with it.
TEST(Pairs, OfValidationAreNeitherMixedNorShuffled) {
  const TemporaryFolder folder;
  std::string many;
  for (int i = 0; i < 20; ++i) many += std::string(1, static_cast<char>('a' + i)) + "\tM\n";
  config::Config c;
  c.model.family = config::Family::encoder_decoder;
  c.model.vocab_size = 700;
  c.train.seq_len = 8, c.train.global_batch_size = 10;
  config::SourceConfig& source = c.data.train;
  source.type = "pairs";
  source.paths = {{put(folder / "many.tsv", many)}, {put(folder / "few.tsv", "the man\tF\n")}};
  source.shuffle = true, source.max_examples = 1, source.temperature = 2;
  source.bpe_dropout = 0.9;
  const auto bpe = tokenizer::load_tokenizer(std::string(TFM_SOURCE_DIR) +
                                             "/tests/fixtures/tokenizers/bart.json");
  data::Opening o{c, source, *bpe, false};
  const auto pairs = data::objective_of(source).open(o);
  EXPECT_EQ(pairs->batches(), 3);
  std::vector<std::int64_t> items, expected(21);
  std::iota(expected.begin(), expected.end(), 0);
  for (std::int64_t i = 0; i < 3; ++i)
    for (const std::int64_t item : pairs->items_of(i)) items.push_back(item);
  EXPECT_EQ(items, expected);
  EXPECT_TRUE(o.notes.empty());
  const Read row(*pairs, 2, 0, 1, pair_widths(8));
  Ids whole = bpe->encode("the man");
  ASSERT_LT(whole.size(), 7u);
  whole.push_back(2);
  EXPECT_TRUE(std::ranges::equal(std::span(row[Field::source_ids]).first(whole.size()), whole));
}

TEST(Pairs, NotesAnEpochThatFillsNoBatchOfTraining) {
  const TemporaryFolder folder;
  config::Config c;
  c.model.family = config::Family::encoder_decoder;
  c.model.vocab_size = 260;
  c.train.seq_len = 8;
  c.data.train.type = "pairs";
  c.data.train.paths = {{put(folder / "a.tsv", "a\tA\nb\tB\nc\tC\n")}};
  const auto notes = [&](std::int64_t batch, bool endless) {
    c.train.global_batch_size = batch;
    data::Opening o{c, c.data.train, *kBytes, endless};
    data::objective_of(c.data.train).open(o);
    return o.notes.size();
  };
  EXPECT_EQ(notes(2, true), 0u);
  EXPECT_EQ(notes(3, true), 0u);
  EXPECT_EQ(notes(4, true), 1u);
  EXPECT_EQ(notes(4, false), 0u);
}

// The largest of the ids that a side has counts, also where no line has it.
TEST(Pairs, SpecialIdsBeyondAVocabularyAreRefused) {
  const TemporaryFolder folder;
  const std::string lines = put(folder / "a", "ab\n");
  const std::string t5 = std::string(TFM_SOURCE_DIR) + "/tests/fixtures/tokenizers/t5.json";
  const auto two = tokenizer::load_tokenizer("bytes", t5);
  const auto open = [&](std::int64_t vocabulary, std::int64_t begin) {
    data::Pairs({{lines, lines, {}}}, *two, {{12, 1}}, vocabulary, false, 1, begin, 512);
  };
  open(258, -1);
  open(301, 300);
  expect_error(ExitCode::input, {"a:1", "id 257", "vocab_size is 257"}, [&] { open(257, -1); });
  expect_error(ExitCode::input, {"a:1", "id 300", "vocab_size is 300"}, [&] { open(300, 300); });
  config::Config c;
  c.model.family = config::Family::encoder_decoder;
  c.data.train.type = "pairs";
  const auto check = [&](std::int64_t vocabulary, std::int64_t begin, std::int64_t source) {
    c.model.vocab_size = vocabulary, c.model.decoder_start = begin;
    c.model.source_vocab_size = source;
    data::objective_of(c.data.train).check_tokenizer(c, c.data.train, *two);
  };
  check(258, -1, 2);
  check(301, 300, 2);
  expect_error(ExitCode::input, {"id 257", "at least 258"}, [&] { check(257, -1, 2); });
  expect_error(ExitCode::input, {"id 300", "at least 301"}, [&] { check(300, 300, 2); });
  expect_error(ExitCode::input, {"source_vocab_size is 1"}, [&] { check(258, -1, 1); });
}

TEST(Pairs, BadFilesAreNamed) {
  const TemporaryFolder folder;
  const auto open = [&](data::PairSpec spec, std::int64_t vocab = 260) {
    return [=] { data::Pairs({spec}, *kBytes, {{8, 2}}, vocab, false, 1); };
  };
  const std::string two = put(folder / "two", "a\nb\n"), one = put(folder / "one", "a\n"),
                    none = put(folder / "none", "");
  expect_error(ExitCode::input, {"2 lines", "has 1;", "translation"}, open({two, one, {}}));
  expect_error(ExitCode::input, {"1 lines", "has 2;", "translation"}, open({one, two, {}}));
  expect_error(ExitCode::input, {"at least one pair"}, open({none, none, {}}));
  expect_error(ExitCode::input, {"one:1", "tab"}, open({{}, {}, {one}}));
  expect_error(ExitCode::input, {"t:2", "tab"},
               open({{}, {}, {put(folder / "t", "a\tb\na\tb\tc\n")}}));
  expect_error(ExitCode::input, {"two:1", "257", "258"}, open({two, two, {}}, 256));
  expect_error(ExitCode::input, {"missing"}, open({folder / "missing", two, {}}));
}

TEST(Pairs, FilesMayBeCompressedAndLinesLongerThanABlock) {
  const TemporaryFolder folder;
  std::string source, target, both;
  for (int i = 0; i < 5; ++i) {
    const std::string line(i == 2 ? 3000000 : i, static_cast<char>('a' + i));
    source += line + (i == 1 ? "\r\n" : "\n"), target += "t\n", both += line + "\tt\n";
  }
  source.pop_back();  // the last line needs no end
  const auto lines_of = [&](const data::PairSpec& spec) {
    std::string all;
    data::each_pair(
        spec, [&](std::string_view s, std::string_view t, const std::string&, const std::string&) {
          all.append(s).append("\t").append(t) += '\n';
        });
    return all;
  };
  const std::string plain = put(folder / "s", source),
                    gz = put(folder / "s.gz", test::gzip(source)),
                    zst = put(folder / "t.zst", test::zstandard(target)),
                    tsv = put(folder / "b.tsv.gz", test::gzip(both));
  EXPECT_TRUE(lines_of({plain, zst, {}}) == both);
  EXPECT_TRUE(lines_of({gz, zst, {}}) == both);
  EXPECT_TRUE(lines_of({{}, {}, {tsv}}) == both);
  put(folder / "s.gz", test::gzip(source).substr(0, 1000));
  expect_error(ExitCode::input, {"s.gz", "truncated"}, [&] { lines_of({gz, zst, {}}); });
}

data::Source stream_of_ids(std::int32_t n, std::int64_t seq_len) {
  std::vector<data::Source::Group> groups(1);
  groups[0].name = "ids";
  Ids ids = counting(n);
  for (auto& id : ids) id %= 250;
  groups[0].streams.push_back(std::make_unique<data::MemoryTokens>("ids", std::move(ids)));
  return data::Source(std::move(groups), seq_len);
}

TEST(Documents, AreNumberedAndTheirFirstIdIsNoLabel) {
  const data::Source s = stream_of_ids(13, 6);
  const std::map<Field, std::int64_t> widths{{Field::ids, 6}, {Field::labels, 6}, {Field::mask, 6}};
  const data::NextToken separate(s, data::Sampler(2, false, 0), 2, true, {true, 3}),
      joined(s, data::Sampler(2, false, 0), 2, true);
  const Read a(separate, 0, 0, 2, widths), b(joined, 0, 0, 2, widths);
  EXPECT_EQ(a[Field::ids], counting(12));
  EXPECT_EQ(a[Field::labels], (Ids{1, 2, 3, -1, 5, 6, 7, 8, 9, 10, 11, 12}));
  EXPECT_EQ(a[Field::mask], (Ids{0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(b[Field::labels], counting(12, 1));
  EXPECT_EQ(b[Field::mask], Ids(12, 0));
}

TEST(Documents, OfMaskedLmTakeTheSpecialsWithThem) {
  const auto bert = tokenizer::load_tokenizer(std::string(TFM_SOURCE_DIR) +
                                              "/tests/fixtures/tokenizers/bert.json");
  const data::Source s = stream_of_ids(13, 6);
  const std::map<Field, std::int64_t> widths{{Field::ids, 8}, {Field::labels, 8}, {Field::mask, 8}};
  for (const std::int32_t end : {3, 5}) {
    const data::MaskedLm batcher(s, data::Sampler(2, false, 0), *bert, 2,
                                 {8, 1000, 0.15, 5, {true, end}}, true);
    EXPECT_EQ(Read(batcher, 0, 0, 1, widths)[Field::mask],
              end == 3 ? (Ids{0, 0, 0, 0, 0, 1, 1, 1}) : Ids(8, 0));
  }
}

TEST(SpanCorruption, SaysHowLargeAVocabularyItsSentinelsNeed) {
  const std::int64_t first = kBytes->sentinel_ids().front();
  expect_error(ExitCode::usage,
               {std::to_string(first + 2), "at least " + std::to_string(first + 3)},
               [&] { data::SpanCorruption::check_tokenizer(*kBytes, 3, first, -1); });
  data::SpanCorruption::check_tokenizer(*kBytes, 3, first + 3, -1);
}

TEST(Documents, OfJsonLinesEndWithAnId) {
  const TemporaryFolder folder;
  const std::string lines =
      put(folder / "a.jsonl", "{\"text\": \"abc\"}\n{\"text\": \"d\"}\n{\"text\": \"efgh\"}\n");
  const auto data = [&](const std::string& tokenizer) {
    return data::RunData(
        config::parse_config("model: {family: decoder, vocab_size: 700, d_model: 8, n_layers: 1, "
                             "n_heads: 1}\ntrain: {seq_len: 8, global_batch_size: 1}\n"
                             "data: {train: {type: text, path: " +
                                 lines + ", documents: separate}, tokenizer: " + tokenizer + "}\n",
                             "test", {}));
  };
  const Read r(*data("bytes").train, 0, 0, 1,
               {{Field::ids, 8}, {Field::labels, 8}, {Field::mask, 8}});
  EXPECT_EQ(r[Field::ids], (Ids{'a', 'b', 'c', 257, 'd', 257, 'e', 'f'}));
  EXPECT_EQ(r[Field::labels], (Ids{'b', 'c', 257, -1, 257, -1, 'f', 'g'}));
  EXPECT_EQ(r[Field::mask], (Ids{0, 0, 0, 0, 1, 1, 2, 2}));
  const std::string fixtures = std::string(TFM_SOURCE_DIR) + "/tests/fixtures/tokenizers/";
  expect_error(ExitCode::usage,
               {"documents is separate", "letters.json", "no end-of-document token"},
               [&] { data(fixtures + "letters.json"); });
}

// A run on token files with ids up to 299; `data` is what stands beside train.
config::Config run_on(const std::string& family, const std::string& train,
                      const std::string& data) {
  return config::parse_config(
      "model: {family: " + family +
          ", vocab_size: 1000, d_model: 8, n_layers: 1, n_heads: 1, position: relative}\n"
          "train: {seq_len: 10, global_batch_size: 3}\ndata: {train: {" +
          train + "}" + (data.empty() ? "" : ", " + data) + "}\n",
      "test", {});
}

TEST(Documents, EndWhereMegatronsIndexSaysSo) {
  const TemporaryFolder folder;
  std::mt19937 random(3);
  for (int trial = 0; trial < 20; ++trial) {
    std::vector<Ids> documents(2 + random() % 30);
    Ids ids, first_of;  // first_of: by position, the number of its document
    for (std::size_t d = 0; d < documents.size(); ++d) {
      documents[d] = counting(static_cast<std::int32_t>(1 + random() % 9), static_cast<int>(d));
      ids.insert(ids.end(), documents[d].begin(), documents[d].end());
      first_of.insert(first_of.end(), documents[d].size(), static_cast<std::int32_t>(d));
    }
    if (ids.size() < 11) continue;
    const std::string path = test::write_megatron(folder / "m.bin", documents, 300);
    for (const std::string tokenizer : {"", "tokenizer: bytes"}) {
      const data::RunData data(
          run_on("decoder", "type: tokens, documents: separate, path: " + path, tokenizer));
      const std::int64_t samples = (std::ssize(ids) - 1) / 10;
      for (std::int64_t i = 0; i < samples; ++i) {
        const Read r(*data.train, i / 3, i % 3, 1,
                     {{Field::ids, 10}, {Field::labels, 10}, {Field::mask, 10}});
        for (std::int64_t k = 0; k < 10; ++k) {
          const auto at = static_cast<std::size_t>(10 * i + k), in = static_cast<std::size_t>(k);
          EXPECT_EQ(r[Field::labels][in], first_of[at] == first_of[at + 1] ? ids[at + 1] : -1);
          EXPECT_EQ(r[Field::mask][in], first_of[at] - first_of[static_cast<std::size_t>(10 * i)]);
        }
      }
      EXPECT_TRUE(std::ranges::none_of(
          data.notes, [](const std::string& n) { return n.starts_with("warning"); }));
    }
  }
}

TEST(Documents, ThatNothingEndsAreSaid) {
  const TemporaryFolder folder;
  const std::string none = test::write_llmc(folder / "none.bin", test::counting(64), 300);
  Ids ids = test::counting(64);
  ids[40] = 257;
  const std::string some = test::write_llmc(folder / "some.bin", ids, 300),
                    one = test::write_megatron(folder / "one.bin", {test::counting(64)}, 300);
  const auto warnings = [&](const std::string& path, const std::string& more) {
    const data::RunData data(run_on(
        "decoder", "type: tokens, documents: separate, path: " + path + more, "tokenizer: bytes"));
    return std::ranges::count_if(
        data.notes, [](const std::string& n) { return n.starts_with("warning: data.train"); });
  };
  EXPECT_EQ(warnings(none, ""), 1);
  EXPECT_EQ(warnings(some, ""), 0);
  EXPECT_EQ(warnings(one, ""), 1);
  EXPECT_EQ(warnings("[" + some + ", " + none + "]", ""), 1);
  EXPECT_EQ(warnings(none, ", document_end: 30"), 0);
  EXPECT_EQ(warnings(some, ", document_end: 300"), 1);
}

TEST(TokenFiles, NeedTheirTokenizersNameForSpecialIds) {
  const TemporaryFolder folder;
  Ids ids;
  for (int i = 0; i < 200; ++i) ids.push_back(i % 300);
  const std::string path = test::write_llmc(folder / "a.bin", ids, 300);
  struct Use {
    std::string family, train;
  };
  const std::vector<Use> uses{{"decoder", "type: tokens, documents: separate, path: "},
                              {"encoder", "type: mlm, path: "},
                              {"encoder", "type: mlm, documents: separate, path: "},
                              {"encoder_decoder", "type: span_corruption, path: "}};
  for (const Use& use : uses) {
    const auto check = [&](const std::string& data) {
      const config::Config c = run_on(use.family, use.train + path, data);
      config::Problems problems(c.places);
      data::check_data(c, problems);
      problems.throw_if_any();
    };
    expect_error(ExitCode::usage, {"a.bin", "set data.tokenizer"}, [&] { check(""); });
    expect_error(ExitCode::usage, {"a.bin", "set data.tokenizer"},
                 [&] { data::RunData(run_on(use.family, use.train + path, "")); });
    check("tokenizer: bytes");
  }
  data::RunData(run_on("decoder", "type: tokens, path: " + path, ""));
  const data::RunData given(
      run_on("decoder", "type: tokens, documents: separate, document_end: 7, path: " + path, ""));
  EXPECT_EQ(Read(*given.train, 0, 0, 1, {{Field::ids, 10}, {Field::labels, 10}})[Field::labels],
            (Ids{1, 2, 3, 4, 5, 6, 7, -1, 9, 10}));
}

TEST(Tokenizers, ThatAModelsDirectoryLacksAreAnErrorWhereOneIsUsed) {
  const TemporaryFolder folder;
  const std::string ids = test::write_llmc(folder / "a.bin", test::counting(64), 300),
                    text = put(folder / "a.txt", std::string(64, 'a'));
  std::filesystem::create_directory(folder / "model");
  const std::string tokenizer = "tokenizer: " + (folder / "model");
  const auto open = [&](const std::string& train) {
    data::RunData{run_on("decoder", train, tokenizer)};
  };
  open("type: tokens, path: " + ids);
  open("type: tokens, documents: separate, document_end: 7, path: " + ids);
  for (const std::string& train :
       {"type: text, path: " + text, "type: tokens, documents: separate, path: " + ids})
    expect_error(ExitCode::input, {"model", "has no tokenizer.json"}, [&] { open(train); });
  std::filesystem::remove(folder / "model");
  expect_error(ExitCode::input, {"model", "no such file or directory"},
               [&] { open("type: tokens, path: " + ids); });
}

TEST(TokenFiles, RememberTheTokenizerThatMadeThem) {
  const TemporaryFolder folder;
  const std::string fixtures = std::string(TFM_SOURCE_DIR) + "/tests/fixtures/tokenizers/";
  put(folder / "t.txt", std::string(300, 'a'));
  const auto prepare = [&](const std::string& tokenizer, data::TokenFormat format) {
    data::PrepareOptions options{{folder / "t.txt"}, tokenizer, folder / "a.bin"};
    options.format = format;
    data::prepare_tokens(options);
    return folder / "a.bin";
  };
  const auto check = [&](const std::string& train, const std::string& data) {
    const config::Config c = run_on("encoder", train, data);
    config::Problems problems(c.places);
    data::check_data(c, problems);
    problems.throw_if_any();
    data::RunData{c};
  };
  for (const auto format : {data::TokenFormat::llmc, data::TokenFormat::megatron}) {
    const std::string mlm = "type: mlm, path: " + prepare("bytes", format);
    check(mlm, "");  // is known to be of bytes
    expect_error(ExitCode::input, {"a.bin", "bytes", "bert.json", "a.bin.json"},
                 [&] { check(mlm, "tokenizer: " + fixtures + "bert.json"); });
    const std::string bert = "type: mlm, path: " + prepare(fixtures + "bert.json", format);
    expect_error(ExitCode::usage, {"set data.tokenizer", "bert.json"}, [&] { check(bert, ""); });
    expect_error(ExitCode::input, {"a.bin", "bert.json", "bytes"},
                 [&] { check(bert, "tokenizer: bytes"); });
    // Another program replaces the ids.
    test::write_llmc(folder / "a.bin", test::counting(99), 300);
    std::filesystem::remove(folder / "a.idx");
    check(bert, "tokenizer: bytes");
  }
}

TEST(Documents, BeginWithTheIdThatTheTokenizerAsksFor) {
  const TemporaryFolder folder;
  const std::string fixtures = std::string(TFM_SOURCE_DIR) + "/tests/fixtures/tokenizers/";
  const std::string lines = put(folder / "a.jsonl", "{\"text\": \"the\"}\n{\"text\": \"data\"}\n");
  const auto ids = [&](const std::string& tokenizer, const std::string& add_begin) {
    const data::RunData run(
        config::parse_config("model: {family: decoder, vocab_size: 1000, d_model: 8, n_layers: 1, "
                             "n_heads: 1}\ntrain: {seq_len: 3, global_batch_size: 1}\n"
                             "data: {train: {type: text, path: " +
                                 lines + "}, tokenizer: " + tokenizer + add_begin + "}\n",
                             "test", {}));
    const Read r(*run.train, 0, 0, 1, {{Field::ids, 3}, {Field::labels, 3}});
    Ids all{r[Field::ids][0]};
    all.insert(all.end(), r[Field::labels].begin(), r[Field::labels].end());
    return all;
  };
  const std::string llama = fixtures + "llama2.json";
  const auto t = tokenizer::load_tokenizer(llama);
  const Ids the = t->encode("the"), data = t->encode("data");
  ASSERT_EQ(the.size(), 1u);
  EXPECT_EQ(ids(llama, ""), (Ids{1, the[0], 2, 1}));
  EXPECT_EQ(ids(llama, ", add_begin: true"), ids(llama, ""));
  EXPECT_EQ(ids(llama, ", add_begin: false"), (Ids{the[0], 2, data[0], data[1]}));
  EXPECT_EQ(ids("bytes", ""), (Ids{'t', 'h', 'e', 'd'}));
  EXPECT_EQ(ids("bytes", ", add_begin: true"), (Ids{256, 't', 'h', 'e'}));
  for (const char* none : {"bert.json", "t5.json", "gpt2.json"})
    EXPECT_EQ(ids(fixtures + none, ""), ids(fixtures + none, ", add_begin: false")) << none;
  expect_error(ExitCode::usage, {"begin-of-text", "letters.json"},
               [&] { ids(fixtures + "letters.json", ", add_begin: true"); });
}

TEST(Documents, NeedAnEndInTheVocabularyWhereOneEndsThem) {
  const TemporaryFolder folder;
  const std::string lines = put(folder / "a.jsonl", "{\"text\": \"abcdefghi\"}\n"),
                    text = put(folder / "a.txt", "abcdefghi"),
                    ids = test::write_llmc(folder / "a.bin", test::counting(9), 256);
  const auto megatron = test::write_megatron(folder / "mg.bin", {test::counting(9)}, 256);
  const auto check = [&](const std::string& type, const std::string& path,
                         const std::string& documents, int vocabulary) {
    const config::Config c = config::parse_config(
        "model: {family: decoder, vocab_size: " + std::to_string(vocabulary) +
            ", d_model: 8, n_layers: 1, n_heads: 1}\ntrain: {seq_len: 8, global_batch_size: 1}\n"
            "data: {train: {type: " +
            type + ", path: " + path + ", documents: " + documents + "}, tokenizer: bytes}\n",
        "test", {});
    config::Problems problems(c.places);
    data::check_data(c, problems);
    problems.throw_if_any();
  };
  for (const auto& [type, path] : {std::pair{"tokens", ids}, {"tokens", megatron}, {"text", lines}})
    expect_error(
        ExitCode::usage, {"documents joined", "id 257", "bytes", "vocab_size 257", "258"},
        [&, type = std::string(type), path = path] { check(type, path, "separate", 257); });
  check("tokens", ids, "separate", 258);
  check("tokens", ids, "joined", 256);
  check("text", text, "separate", 256);  // documents end with their files
}

TEST(RunData, SharesEqualWeightsOut) {
  const TemporaryFolder folder;
  const std::string a = test::write_llmc(folder / "a.bin", test::counting(33), 300),
                    b = test::write_llmc(folder / "b.bin", test::counting(9, 100), 300);
  const auto firsts = [&](const std::string& paths) {
    const data::RunData data(
        config::parse_config("model: {family: decoder, vocab_size: 300, d_model: 8, n_layers: 1, "
                             "n_heads: 1}\ntrain: {seq_len: 8, global_batch_size: 4}\n"
                             "data: {train: {type: tokens, path: " +
                                 paths + "}}\n",
                             "test", {}));
    const Read r(*data.train, 0, 0, 4, {{Field::ids, 8}, {Field::labels, 8}});
    return Ids{r[Field::ids][0], r[Field::ids][8], r[Field::ids][16], r[Field::ids][24]};
  };
  EXPECT_EQ(firsts("[" + a + ", " + b + "]"), (Ids{0, 8, 16, 24}));
  for (const char* weight : {"1", "2"})
    EXPECT_EQ(firsts("[{path: " + a + ", weight: " + weight + "}, {path: " + b +
                     ", weight: " + weight + "}]"),
              (Ids{0, 100, 8, 100}));
}

TEST(RunData, NotesWhatIsTruncatedOrLeftOut) {
  const TemporaryFolder folder;
  const std::string text = put(folder / "text", std::string(30, 'x')),
                    few = put(folder / "text2", std::string(8, 'x')),
                    whole = put(folder / "whole", std::string(17, 'x')),
                    long_lines = put(folder / "long", std::string(9, 'x') + "\ny\n"),
                    lines = put(folder / "lines", "a\nb\n");
  const auto notes_of = [&](const std::string& family, const std::string& train,
                            const std::string& validation, int vocabulary = 300) {
    return data::RunData(config::parse_config(
                             "model: {family: " + family +
                                 ", vocab_size: " + std::to_string(vocabulary) +
                                 ", d_model: 8, n_layers: 1, n_heads: 1}\n"
                                 "train: {seq_len: 8, global_batch_size: 1}\ndata:\n  train: {" +
                                 train + "}\n  validation: {" + validation + "}\n",
                             "test", {}))
        .notes;
  };
  const auto text_of = [](const std::string& path) { return "type: text, path: " + path; };
  const auto notes = notes_of("decoder", text_of(text + "*"), text_of(text));
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_TRUE(notes[0].starts_with("data.train: 13 of 38 tokens")) << notes[0];
  EXPECT_NE(notes[0].find("1 of 2 files"), std::string::npos) << notes[0];
  EXPECT_TRUE(notes[1].starts_with("data.validation: 5 of 30 tokens")) << notes[1];
  EXPECT_TRUE(notes_of("decoder", text_of(whole), text_of(whole)).empty());
  const auto pairs =
      notes_of("encoder_decoder", "type: pairs, source: " + long_lines + ", target: " + lines,
               "type: pairs, source: " + lines + ", target: " + lines);
  ASSERT_EQ(pairs.size(), 1u);
  EXPECT_TRUE(pairs[0].starts_with("data.train: 1 sentence exceeded train.seq_len = 8"))
      << pairs[0];
  const auto bytes = notes_of("decoder", text_of(whole), text_of(whole), 1000);
  ASSERT_EQ(bytes.size(), 1u);
  EXPECT_TRUE(bytes[0].starts_with("the tokenizer bytes makes 256 of the 1000 ids")) << bytes[0];
}

TEST(RunData, EvaluatesEachBatchOfValidationOnceAtMost) {
  const TemporaryFolder folder;
  const std::string left = put(folder / "left", "a\nb\nc\nd\ne\n"),
                    right = put(folder / "right", "A\nB\nC\nD\nE\n"),
                    pairs = "type: pairs, source: " + left + ", target: " + right;
  const auto config_of = [&](const std::string& validation, int batches) {
    return config::parse_config(
        "model: {family: encoder_decoder, vocab_size: 300, d_model: 8, n_layers: 1, n_heads: 1}\n"
        "train: {seq_len: 8, global_batch_size: 2}\neval: {batches: " +
            std::to_string(batches) + "}\ndata: {train: {" + pairs + "}" + validation + "}\n",
        "test", {});
  };
  // Five pairs make batches of 2, 2 and 1; 0 stands for all of them.
  for (const auto& [asked, batches, lines] :
       {std::tuple{0, 3, 5}, {1, 1, 2}, {2, 2, 4}, {3, 3, 5}, {4, 3, 5}, {100, 3, 5}}) {
    const config::Config c = config_of(", validation: {" + pairs + "}", asked);
    const data::RunData run(c);
    EXPECT_EQ(run.validation_batches(c), batches) << asked;
    const data::RunData::Lines evaluated = run.validation_lines(c);
    const std::string all = "abcde";
    std::vector<std::string> source, target;
    for (int i = 0; i < lines; ++i) {
      source.emplace_back(1, all[static_cast<std::size_t>(i)]);
      target.emplace_back(1, static_cast<char>(source.back()[0] - 'a' + 'A'));
    }
    EXPECT_EQ(evaluated.source, source) << asked;
    EXPECT_EQ(evaluated.target, target) << asked;
  }
  // Of two lengths, batches are dealt as they fill up: of two long pairs, then of the short ones.
  const std::string unlike = put(folder / "unlike", "a\n0123456789\nb\n9876543210\nc\n");
  const config::Config two = config::parse_config(
      "model: {family: encoder_decoder, vocab_size: 300, d_model: 8, n_layers: 1, n_heads: 1}\n"
      "train: {seq_len: 16, global_batch_tokens: 32}\neval: {batches: 0}\ndata: {train: {" +
          pairs + "}, validation: {type: pairs, source: " + unlike + ", target: " + right + "}}\n",
      "test", {});
  const data::RunData::Lines dealt = data::RunData(two).validation_lines(two);
  EXPECT_EQ(dealt.source, (std::vector<std::string>{"0123456789", "9876543210", "a", "b", "c"}));
  EXPECT_EQ(dealt.target, (std::vector<std::string>{"B", "D", "A", "C", "E"}));
  const config::Config none = config_of("", 3);
  EXPECT_EQ(data::RunData(none).validation_batches(none), 0);
}

TEST(RunData, NeedsRoomForTextBetweenTheIdsOfTheTokenizer) {
  const TemporaryFolder folder;
  const std::string text = put(folder / "t.txt", std::string(40, 'a')),
                    rows = put(folder / "r.tsv", "text\tpair\tlabel\nab\tcd\t0\n");
  const std::string bert = std::string(TFM_SOURCE_DIR) + "/tests/fixtures/tokenizers/bert.json";
  const auto check = [&](const std::string& train, int length, const std::string& heads) {
    const config::Config c = config::parse_config(
        "model: {family: encoder, vocab_size: 700, d_model: 8, n_layers: 1, n_heads: 1" + heads +
            "}\ntrain: {seq_len: " + std::to_string(length) +
            ", global_batch_size: 1}\ndata: {train: {" + train +
            "}, tokenizer: " + (heads.empty() ? bert : "bytes") + "}\n",
        "test", {});
    config::Problems problems(c.places);
    data::check_data(c, problems);
    problems.throw_if_any();
    data::RunData alone(c, c.data.train, "");
  };
  const std::string classify = ", heads: [{type: classify, classes: 2}]";
  for (const auto& [train, heads, least] :  // ids around texts, and one of each
       {std::tuple{"type: mlm, path: " + text, std::string(), 3},
        {"type: labelled, text_pair: pair, path: " + rows, std::string(", heads: [{type: embed}]"),
         3},
        {"type: labelled, path: " + rows, classify, 3},
        {"type: labelled, text_pair: pair, path: " + rows, classify, 5}}) {
    check(train, least, heads);
    expect_error(
        ExitCode::usage,
        {"train.seq_len " + std::to_string(least - 1), "at least " + std::to_string(least)},
        [&, train = train, heads = heads, least = least] { check(train, least - 1, heads); });
  }
}

// An error of data names the key of its files.
TEST(RunData, ErrorsPointAtTheKeyOfTheFiles) {
  const TemporaryFolder folder;
  const std::string two = put(folder / "two", "a\nb\n"), one = put(folder / "one", "a\n");
  const auto open = [&](const std::string& train) {
    data::RunData{config::parse_config(
        "model: {family: encoder_decoder, vocab_size: 300, d_model: 8, n_layers: 1, n_heads: 1}\n"
        "train: {seq_len: 8, global_batch_size: 2}\ndata:\n  train:\n    type: pairs\n" +
            train,
        "cfg", {})};
  };
  expect_error(ExitCode::input, {"cfg:6:", "one has 1 lines"},
               [&] { open("    source: " + one + "\n    target: " + two + "\n"); });
  expect_error(ExitCode::input, {"cfg:7:", "expected a source, one tab"},
               [&] { open("    shuffle: false\n    path: " + two + "\n"); });
}

// Ids in files may be fewer than those of the tokenizer that is named; texts may have any.
TEST(RunData, TheVocabularyHoldsTheIdsOfTexts) {
  const TemporaryFolder folder;
  const std::string ids = test::write_llmc(folder / "a.bin", counting(40), 300),
                    text = put(folder / "a.txt", std::string(40, 'a')),
                    bert = std::string(TFM_SOURCE_DIR) + "/tests/fixtures/tokenizers/bert.json";
  const std::int64_t all = tokenizer::load_tokenizer(bert)->vocab_size();
  const auto open = [&](const std::string& train, std::int64_t vocabulary) {
    config::Config c = run_on("decoder", train, "tokenizer: " + bert);
    c.model.vocab_size = vocabulary;
    data::RunData{c};
  };
  open("type: tokens, path: " + ids, 40);
  config::Config few = run_on("decoder", "type: tokens, path: " + ids, "");
  for (const std::int64_t vocabulary : {11, 10}) {  // the first sample is looked at before a start
    few.model.vocab_size = vocabulary;
    config::Problems problems(few.places);
    data::check_data(few, problems);
    if (vocabulary == 11)
      problems.throw_if_any();
    else
      expect_error(ExitCode::input, {"a.bin", "token 10", "id 10"},
                   [&] { problems.throw_if_any(); });
  }
  open("type: text, path: " + text, all);
  expect_error(ExitCode::input,
               {"ids up to " + std::to_string(all - 1), "at least " + std::to_string(all)},
               [&] { open("type: text, path: " + text, all - 1); });
}

TEST(RunData, RemarksOnAVocabularyOfWhichATokenizerMakesLessThanHalf) {
  const std::string t5 = std::string(TFM_SOURCE_DIR) + "/tests/fixtures/tokenizers/t5.json";
  const auto two = tokenizer::load_tokenizer("bytes", t5),
             swapped = tokenizer::load_tokenizer(t5, "bytes");
  config::Config c;
  const auto remarks = [&](const tokenizer::Tokenizer& t, std::int64_t vocabulary,
                           std::int64_t source = 0) {
    c.model.vocab_size = vocabulary, c.model.source_vocab_size = source;
    return data::unused_ids(c, t) != "";
  };
  EXPECT_FALSE(remarks(*kBytes, 512));
  EXPECT_TRUE(remarks(*kBytes, 513));
  for (const auto* t : {two.get(), swapped.get()}) {  // the larger side's 510
    EXPECT_FALSE(remarks(*t, 1020));
    EXPECT_TRUE(remarks(*t, 1021));
  }
  EXPECT_FALSE(remarks(*two, 512, 510));  // the target's 256
  EXPECT_TRUE(remarks(*two, 513, 510));
  EXPECT_FALSE(remarks(*swapped, 1020, 256));
}

// Where the model's directory is where the tokenizer was looked for, the message says so.
TEST(Tokenizers, OfAnInitializingModelAreNamedAsSuch) {
  const TemporaryFolder folder;
  const std::string text = put(folder / "a.txt", std::string(64, 'a'));
  for (const char* name : {"model", "other"}) std::filesystem::create_directory(folder / name);
  const auto message = [&](const std::string& init, const std::string& tokenizer) {
    config::Config c = run_on("decoder", "type: text, path: " + text, "");
    c.model.init = init, c.data.tokenizer = tokenizer;
    try {
      data::RunData{c};
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::input);
      return std::string(e.what());
    }
    return std::string("no error");
  };
  const std::string remark = "this is model.init's";
  EXPECT_NE(message(folder / "model", folder / "model").find(remark), std::string::npos);
  EXPECT_EQ(message(folder / "model", folder / "other").find(remark), std::string::npos);
  EXPECT_EQ(message("random", folder / "model").find(remark), std::string::npos);
  EXPECT_NE(message("random", folder / "model").find("no tokenizer.json"), std::string::npos);
}

// Document 0 is an id like any other; a name of the tokenizer adds its end to those of the index.
TEST(Documents, EndWithTheIdThatIsGivenAndThatOfTheTokenizer) {
  const TemporaryFolder folder;
  Ids ids = counting(11, 1);
  ids[4] = 0, ids[7] = 257;
  const std::string llmc = test::write_llmc(folder / "a.bin", ids, 300),
                    megatron = test::write_megatron(
                        folder / "m.bin",
                        {Ids(ids.begin(), ids.begin() + 3), Ids(ids.begin() + 3, ids.end())}, 300);
  const auto mask = [&](const std::string& train, const std::string& data) {
    const data::RunData run(
        run_on("decoder", "type: tokens, documents: separate, path: " + train, data));
    return Read(*run.train, 0, 0, 1,
                {{Field::ids, 10}, {Field::labels, 10}, {Field::mask, 10}})[Field::mask];
  };
  EXPECT_EQ(mask(llmc + ", document_end: 0", ""), (Ids{0, 0, 0, 0, 0, 1, 1, 1, 1, 1}));
  EXPECT_EQ(mask(llmc, "tokenizer: bytes"), (Ids{0, 0, 0, 0, 0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(mask(llmc + ", document_end: 0", "tokenizer: bytes"),
            (Ids{0, 0, 0, 0, 0, 1, 1, 1, 1, 1}));
  EXPECT_EQ(mask(megatron, ""), (Ids{0, 0, 0, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(mask(megatron, "tokenizer: bytes"), (Ids{0, 0, 0, 1, 1, 1, 1, 1, 2, 2}));
  // A tokenizer without such an id is no error where the index knows all documents.
  const std::string letters =
      "tokenizer: " + std::string(TFM_SOURCE_DIR) + "/tests/fixtures/tokenizers/letters.json";
  EXPECT_EQ(mask(megatron, letters), (Ids{0, 0, 0, 1, 1, 1, 1, 1, 1, 1}));
  expect_error(ExitCode::usage, {"letters.json", "no end-of-document token"},
               [&] { mask(llmc, letters); });
}

// Validation is one pass in the order of the files, also of data that training shuffles.
TEST(RunData, ReadsValidationInItsOrder) {
  const TemporaryFolder folder;
  const std::string ids = test::write_llmc(folder / "a.bin", counting(121), 300),
                    chars = put(folder / "b.txt", "x");
  std::string rows = "text\tlabel\n";
  for (int i = 0; i < 12; ++i) rows += std::string(1, static_cast<char>('a' + i)) + "\t0\n";
  put(folder / "r.tsv", rows);
  struct Use {
    std::string model, source;
    std::int64_t at;  // of the first id of a text
    std::int32_t first, step;
  };
  for (const Use& use :
       {Use{"decoder, position: relative", "type: tokens, shuffle: true, path: " + ids, 0, 0, 10},
        {"encoder, heads: [{type: classify, classes: 2}]",
         "type: labelled, shuffle: true, path: " + (folder / "r.tsv"), 1, 'a', 1}}) {
    const data::RunData run(config::parse_config(
        "model: {vocab_size: 300, d_model: 8, n_layers: 1, n_heads: 1, family: " + use.model +
            "}\ntrain: {seq_len: 10, global_batch_size: 4}\ndata: {train: {" + use.source +
            "}, validation: {" + use.source + "}, tokenizer: bytes}\n",
        "test", {}));
    bool shuffled = false;
    ASSERT_EQ(run.validation->batches(), 3);
    EXPECT_EQ(run.tokens, use.at == 0 ? 121 : 12);
    EXPECT_EQ(data::RunData(run_on("decoder", "type: tokens, path: " + ids, ""),
                            config::SourceConfig{.type = "tokens", .paths = {{ids}}}, "")
                  .tokens,
              0);  // of training
    for (std::int64_t i = 0; i < 12; ++i) {
      const std::map<Field, std::int64_t> widths{{Field::ids, 10}, {Field::labels, 10}};
      const auto id = [&](const data::Dataset& d) {
        return Read(d, i / 4, i % 4, 1, widths)[Field::ids][static_cast<std::size_t>(use.at)];
      };
      const auto expected = static_cast<std::int32_t>(use.first + i * use.step);
      EXPECT_EQ(id(*run.validation), expected);
      shuffled |= id(*run.train) != expected;
    }
    EXPECT_TRUE(shuffled);
  }
}

TEST(RunData, NotesAnEpochOfLessThanABatch) {
  const TemporaryFolder folder;
  const std::string text = put(folder / "text", std::string(17, 'x')),  // two samples of 8
      lines = put(folder / "lines", "a\nb\n");
  const auto notes_of = [&](const std::string& family, const std::string& train, int batch) {
    return data::RunData(config::parse_config(
                             "model: {family: " + family +
                                 ", vocab_size: 300, d_model: 8, n_layers: 1, n_heads: 1}\n"
                                 "train: {seq_len: 8, global_batch_size: " +
                                 std::to_string(batch) + "}\ndata: {train: {" + train + "}}\n",
                             "test", {}))
        .notes;
  };
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {"decoder", "type: text, path: " + text, "2 samples of 8 tokens"},
      {"encoder", "type: mlm, path: " + text, "2 samples of 8 tokens"},
      {"encoder_decoder", "type: pairs, source: " + lines + ", target: " + lines,
       "2 sentence pairs for batches of 3"}};
  for (const auto& [family, train, expected] : cases) {
    const auto has = [&](const auto& notes) {
      return std::ranges::any_of(
          notes, [&, what = expected](const auto& n) { return n.find(what) != n.npos; });
    };
    EXPECT_FALSE(has(notes_of(family, train, 2))) << family;
    EXPECT_TRUE(has(notes_of(family, train, 3))) << family;
  }
}

TEST(RunData, MaskedLmReadsTokenFilesByEveryName) {
  const TemporaryFolder folder;
  test::write_megatron(folder / "mg.bin", {test::counting(20)}, 256);
  for (const char* shard : {"x00", "x01"})
    std::filesystem::rename(test::write_llmc(folder / "x.bin", test::counting(20), 256),
                            folder / shard);
  put(folder / "y.txt", std::string(20, 'y'));
  const auto tokens_of = [&](const std::string& path) {
    return data::RunData(config::parse_config(
                             "model: {family: encoder, vocab_size: 300, d_model: 8, n_layers: 1, "
                             "n_heads: 1}\ntrain: {seq_len: 8, global_batch_size: 1}\n"
                             "data: {train: {type: mlm, path: '" +
                                 path + "'}, tokenizer: bytes}\n",
                             "test", {}))
        .tokens;
  };
  for (const char* path : {"mg", "mg.idx", "mg.bin", "mg*"})
    EXPECT_EQ(tokens_of(folder / path), 20) << path;
  EXPECT_EQ(tokens_of(folder / "x*"), 40);
  EXPECT_EQ(tokens_of(folder / "y.txt"), 20);
  expect_error(ExitCode::input, {"x00", "is a token file", "no text is beside them"},
               [&] { tokens_of(folder / "[xy]*"); });
  expect_error(ExitCode::input, {"no file matches"}, [&] { tokens_of(folder / "z*"); });
}

// What tfm-data shows of the first sequences: text on one line, ids that are no text by name or
// number, gaps where nothing is to be predicted.
TEST(Samples, ShowWhatABatchHolds) {
  const TemporaryFolder folder;
  const auto shown = [&](const std::string& model, const std::string& train, int count,
                         bool json = false, int length = 8) {
    const config::Config c = config::parse_config(
        "model: {vocab_size: 300, d_model: 8, n_layers: 1, n_heads: 1, family: " + model +
            "}\ntrain: {seq_len: " + std::to_string(length) +
            ", global_batch_size: 2}\ndata: {train: {shuffle: false, " + train +
            "}, tokenizer: bytes}\n",
        "test", {});
    return json ? data::samples_json(c, count) : data::samples_text(c, count);
  };
  const std::string text = put(folder / "a.txt", "ab\tcd\nefghijklmnopqrstuvwxyz");
  EXPECT_EQ(shown("decoder", "type: text, path: " + text, 3),
            "sequence 0 (batch 0)\n  input:  ab\\tcd\\nef\n  label:  b\\tcd\\nefg\n"
            "sequence 1 (batch 0)\n  input:  ghijklmn\n  label:  hijklmno\n"
            "sequence 2 (batch 1)\n  input:  opqrstuv\n  label:  pqrstuvw\n");
  EXPECT_EQ(shown("decoder", "type: text, path: " + text, 0), "");
  const std::string ids =
      test::write_llmc(folder / "a.bin", {257, 'b', 'c', 257, 299, 256, 259, 258, 'd'}, 300);
  EXPECT_EQ(shown("decoder", "type: tokens, documents: separate, path: " + ids, 1),
            "sequence 0 (batch 0)\n  input:  </s>bc</s><299><s><mask><pad>\n"
            "  label:  c</s> .. <s><mask><pad>d\n");
  const std::string pairs = put(folder / "p.tsv", "ab\tX\n");
  EXPECT_EQ(shown("encoder_decoder", "type: pairs, path: " + pairs, 1),
            "sequence 0 (batch 0)\n  source: ab</s>\n  input:  <s>X\n  label:  X</s>\n");
  const std::string rows = put(folder / "r.tsv", "text\tkind\tscore\nab\t1\t0.5\ncd\t0\t\n");
  const std::string heads =
      "encoder, heads: [{type: classify, name: kind, classes: 2}, {type: regress, name: score}]";
  EXPECT_EQ(shown(heads, "type: labelled, path: " + rows, 2),
            "sequence 0 (batch 0)\n  input:  <s>ab</s>\n  sentence_labels: 1\n  numbers: 0.5\n"
            "sequence 1 (batch 0)\n  input:  <s>cd</s>\n  sentence_labels: 0\n");
  const std::string json = shown(heads, "type: labelled, path: " + rows, 2, true, 5);
  EXPECT_NE(json.find("{\"batch\": 0, \"ids\": [256, 97, 98, 257, 0]"), json.npos) << json;
  EXPECT_NE(json.find("\"sentence_labels\": [1]"), json.npos) << json;
  EXPECT_NE(json.find("\"numbers\": [0.5]"), json.npos) << json;
  EXPECT_NE(json.find("\"numbers\": [null]"), json.npos) << json;
  EXPECT_EQ(std::ranges::count(json, '\n'), 2);
}

// Each side of a translation is shown by its own tokenizer.
TEST(Samples, ShowEachSideByItsTokenizer) {
  const TemporaryFolder folder;
  const std::string pairs = put(folder / "p.tsv", "the\tX\n"),
                    t5 = std::string(TFM_SOURCE_DIR) + "/tests/fixtures/tokenizers/t5.json";
  const config::Config c = config::parse_config(
      "model: {vocab_size: 300, source_vocab_size: 512, d_model: 8, n_layers: 1, n_heads: 1, "
      "family: encoder_decoder, tie_embeddings: false}\ntrain: {seq_len: 8, global_batch_size: 1}\n"
      "data: {train: {type: pairs, path: " +
          pairs + "}, tokenizer: bytes, source_tokenizer: " + t5 + "}\n",
      "test", {});
  const auto source = tokenizer::load_tokenizer(t5);
  std::string words;
  for (const std::int32_t id : source->encode("the")) words += source->token_text(id);
  EXPECT_EQ(data::samples_text(c, 1),
            "sequence 0 (batch 0)\n  source: " + words + "</s>\n  input:  <s>X\n  label:  X</s>\n");
}

// Hosts that read other data are told apart, wherever in a batch it differs.
TEST(RunData, FingerprintsDifferWithTheDataOfABatch) {
  const TemporaryFolder folder;
  const auto print = [&](const std::string& source, const std::string& target, int batch = 200) {
    config::Config c;
    c.model.family = config::Family::encoder_decoder;
    c.model.vocab_size = 260;
    c.train.seq_len = 8, c.train.global_batch_size = batch;
    c.data.train.type = "pairs";
    const std::string path = put(folder / "p.tsv", "");
    std::string lines;
    for (int i = 0; i < 200; ++i)
      lines += (i == 190 ? source : "a") + "\t" + (i == 190 ? target : "b") + "\n";
    c.data.train.paths = {{put(path, lines)}};
    c.data.train.shuffle = false;
    data::Opening o{c, c.data.train, *kBytes, true};
    const auto pairs = data::objective_of(c.data.train).open(o);
    return data::fingerprint(c, *pairs, 0);
  };
  // Of 200 sequences the 64 that are read are those at 200 i / 64, 190 (i = 61) among them.
  ASSERT_EQ(61 * 200 / 64, 190);
  const std::uint64_t usual = print("a", "b");
  EXPECT_EQ(print("a", "b"), usual);
  EXPECT_NE(print("x", "b"), usual);
  EXPECT_NE(print("a", "x"), usual);
  EXPECT_NE(print("a", "b", 40), print("a", "b", 50));  // 5 batches and 4
}

TEST(TokenFiles, MadeWithTheTokenizerThatIsNamedAreAccepted) {
  const TemporaryFolder folder;
  put(folder / "t.txt", std::string(301, 'a'));
  data::prepare_tokens(
      {.inputs = {folder / "t.txt"}, .tokenizer = "bytes", .output = folder / "a.bin"});
  const std::string train = "type: tokens, path: " + (folder / "a.bin");
  const data::RunData named(run_on("decoder", train, "tokenizer: bytes")),
      unnamed(run_on("decoder", train, ""));
  EXPECT_EQ(named.tokens, 301);
  EXPECT_EQ(named.tokenizer_fingerprint, data::fingerprint(*kBytes));
  EXPECT_EQ(unnamed.tokenizer_fingerprint, "");
  EXPECT_TRUE(named.notes.empty());  // 256 of 1000 ids are no remark where files have the ids
}

TEST(MaskedLm, ChoosesFifteenOfAHundredAndHidesEightOfTen) {
  const data::Source s = stream_of_ids(65001, 64);
  const data::MaskedLm batcher(s, data::Sampler(s.samples(), false, 0), *kBytes, 500,
                               {64, 260, 0.15, 5, {}}, true);
  const std::map<Field, std::int64_t> widths{{Field::ids, 64}, {Field::labels, 64}};
  const Read r(batcher, 0, 0, 500, widths), part(batcher, 0, 137, 2, widths),
      next(batcher, 7, 0, 500, widths);
  EXPECT_TRUE(std::equal(part[Field::ids].begin(), part[Field::ids].end(),
                         r[Field::ids].begin() + 137 * 64));
  EXPECT_TRUE(std::equal(part[Field::labels].begin(), part[Field::labels].end(),
                         r[Field::labels].begin() + 137 * 64));
  EXPECT_NE(r[Field::labels], next[Field::labels]);
  EXPECT_EQ(Read(batcher, 0, 0, 3,
                 {{Field::ids, 64},
                  {Field::labels, 64},
                  {Field::sentence_labels, 1}})[Field::sentence_labels],
            (Ids{-1, -1, -1}));
  double chosen = 0, masked = 0, kept = 0, total = static_cast<double>(r[Field::ids].size());
  for (std::size_t i = 0; i < r[Field::ids].size(); ++i) {
    if (r[Field::labels][i] < 0) continue;
    ++chosen;
    masked += r[Field::ids][i] == tokenizer::ByteSpecials::mask;
    kept += r[Field::ids][i] == r[Field::labels][i];
  }
  EXPECT_NEAR(chosen / total, 0.15, 0.01);
  EXPECT_NEAR(masked / chosen, 0.8, 0.03);
  EXPECT_NEAR(kept / chosen, 0.1, 0.02);
  expect_error(ExitCode::usage, {"vocab_size 259"}, [&] {
    data::MaskedLm(s, data::Sampler(s.samples(), false, 0), *kBytes, 5, {64, 259, 0.15, 5, {}},
                   true);
  });
}

TEST(NextSentence, PairsFollowHalfOfTheTime) {
  const data::Source s = stream_of_ids(240 * 13 + 1, 13);
  const data::Sampler order(240, true, 3);
  const auto batches = [&](double probability) {
    return data::MaskedLm(s, order, *kBytes, 240, {16, 260, probability, 5, {}, true}, true);
  };
  EXPECT_EQ(data::MaskedLm::specials(*kBytes, true), 3);
  const std::map<Field, std::int64_t> widths{{Field::ids, 16},
                                             {Field::labels, 16},
                                             {Field::mask, 16},
                                             {Field::token_types, 16},
                                             {Field::sentence_labels, 1}};
  const Read r(batches(0), 2, 0, 240, widths), again(batches(0), 2, 0, 240, widths),
      next(batches(0), 3, 0, 240, widths);
  EXPECT_EQ(r.data, again.data);
  EXPECT_NE(r[Field::sentence_labels], next[Field::sentence_labels]);
  EXPECT_EQ(r[Field::mask], Ids(240 * 16, 0));
  EXPECT_EQ(r[Field::labels], Ids(240 * 16, -1));
  std::set<std::int64_t> distances;
  for (std::int64_t i = 0; i < 240; ++i) {
    const Ids row(r[Field::ids].begin() + i * 16, r[Field::ids].begin() + (i + 1) * 16),
        types(r[Field::token_types].begin() + i * 16, r[Field::token_types].begin() + (i + 1) * 16);
    EXPECT_EQ(types, (Ids{0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1}));
    EXPECT_EQ((Ids{row[0], row[8], row[15]}),
              (Ids{tokenizer::ByteSpecials::begin, tokenizer::ByteSpecials::end,
                   tokenizer::ByteSpecials::end}));
    const std::int64_t sample = order.sample(2 * 240 + i);
    for (std::int64_t k = 0; k < 7; ++k)
      EXPECT_EQ(row[static_cast<std::size_t>(1 + k)], (sample * 13 + k) % 250);
    for (std::size_t k = 10; k < 15; ++k)
      EXPECT_EQ(row[k], (row[9] + static_cast<std::int32_t>(k) - 9) % 250);
    std::int64_t other = 0;  // whose second half B is
    while ((other * 13 + 7) % 250 != row[9]) ++other;
    ASSERT_LT(other, 240);
    EXPECT_EQ(r[Field::sentence_labels][static_cast<std::size_t>(i)], other == sample ? 0 : 1);
    distances.insert(other - sample);
  }
  EXPECT_NEAR(
      std::accumulate(r[Field::sentence_labels].begin(), r[Field::sentence_labels].end(), 0), 120,
      30);
  EXPECT_GT(distances.size(), 80u);

  const Read masked(batches(0.5), 2, 0, 240, widths), part(batches(0.5), 2, 100, 3, widths);
  for (const auto& [field, width] : widths)
    EXPECT_TRUE(
        std::equal(part[field].begin(), part[field].end(), masked[field].begin() + 100 * width))
        << info_of(field).name;
  for (std::size_t at = 0; at < masked[Field::ids].size(); ++at) {
    const bool special = at % 16 == 0 || at % 16 == 8 || at % 16 == 15;
    EXPECT_EQ(masked[Field::labels][at] < 0 ? masked[Field::ids][at] : masked[Field::labels][at],
              r[Field::ids][at]);
    EXPECT_FALSE(special && masked[Field::labels][at] >= 0);
  }
  const data::Source one = stream_of_ids(14, 13);
  expect_error(ExitCode::input, {"one sample"}, [&] {
    data::MaskedLm(one, data::Sampler(1, false, 0), *kBytes, 1, {16, 260, 0.15, 5, {}, true}, true);
  });
}

// As data::batch_shapes() says of all masks (nn::BatchShape::right_padded).
void expect_right_padded(const Ids& mask, std::size_t width) {
  for (std::size_t i = 0; i + 1 < mask.size(); ++i)
    if ((i + 1) % width != 0) {
      EXPECT_TRUE(mask[i] >= 0 || mask[i + 1] < 0) << i;
    }
}

TEST(Objectives, IdsThatTheModelDoesNotKnowAreRefused) {
  const TemporaryFolder folder;
  put(folder / "tokenizer.json", R"({"model": {"type": "BPE", "merges": [], "vocab":
      {"[MASK]": 0, "[UNK]": 1, "a": 2, "<extra_id_0>": 3, "[CLS]": 4, "</s>": 5, "[SEP]": 6}},
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false,
      "trim_offsets": true, "use_regex": true}})");
  const auto t = tokenizer::load_tokenizer(folder / "tokenizer.json");
  for (const bool next_sentence : {false, true}) {
    EXPECT_NO_THROW(data::MaskedLm::check_tokenizer(*t, 7, next_sentence));
    EXPECT_THROW(data::MaskedLm::check_tokenizer(*t, 6, next_sentence), Error);
  }
  EXPECT_NO_THROW(data::SpanCorruption::check_tokenizer(*t, 1, 6, -1));
  EXPECT_THROW(data::SpanCorruption::check_tokenizer(*t, 1, 5, -1), Error) << "</s>";
  EXPECT_THROW(data::SpanCorruption::check_tokenizer(*t, 1, 6, 6), Error) << "decoder_start";
}

// What a step's program is told of its batches: masks where any data keeps documents apart, counts
// from their starts where sequences are packed, or as the key says.
TEST(Objectives, ShapesKnowDocumentsOfBothSources) {
  using enum config::Documents;
  config::Config c;
  c.data.train.type = "text";
  c.train.seq_len = 32, c.train.global_batch_size = 3;
  const auto shape = [&](config::Documents train, std::optional<config::Documents> validation,
                         config::Switch restart = config::Switch::automatic) {
    c.data.train.documents = train;
    c.data.validation.reset();
    if (validation) c.data.validation = c.data.train, c.data.validation->documents = *validation;
    c.data.restart_positions = restart;
    const nn::BatchShape found = data::batch_shapes(c).at(0);
    return std::pair(found.mask == nn::Mask::documents, found.restarts);
  };
  EXPECT_EQ(shape(joined, {}), std::pair(false, false));
  EXPECT_EQ(shape(joined, joined), std::pair(false, false));
  EXPECT_EQ(shape(separate, {}), std::pair(true, false));
  EXPECT_EQ(shape(separate, joined), std::pair(true, false));
  EXPECT_EQ(shape(joined, separate), std::pair(true, false));
  EXPECT_EQ(shape(packed, {}), std::pair(true, true));
  EXPECT_EQ(shape(packed, {}, config::Switch::no), std::pair(true, false));
  EXPECT_EQ(shape(separate, {}, config::Switch::yes), std::pair(true, true));
  EXPECT_EQ(shape(joined, {}, config::Switch::yes), std::pair(false, false));
  c.data.train.type = "chat";
  EXPECT_EQ(shape(joined, {}), std::pair(true, true));
  EXPECT_EQ(shape(joined, {}, config::Switch::no), std::pair(true, false));
  c.data.train.type = "text";
  for (const auto family : {config::Family::encoder, config::Family::decoder}) {
    c.model.family = family;
    EXPECT_EQ(data::batch_shapes(c).at(0).source_length, 0);
  }
  c.model.family = config::Family::encoder_decoder;
  EXPECT_EQ(data::batch_shapes(c).at(0).source_length, 32);
}

// Targets are padded to multiples of 8, and to what ranks that share positions need.
TEST(SpanCorruption, TargetsArePaddedForTheRanksThatShareThem) {
  config::Config c;
  c.model.family = config::Family::encoder_decoder;
  c.data.train.type = "span_corruption";
  c.data.train.mask_probability = 0.15, c.data.train.mean_span_length = 3;
  c.train.seq_len = 56;
  c.model.position = config::Position::relative;
  const std::int64_t target = data::span_lengths(56, 0.15, 3).target;
  ASSERT_TRUE(target > 8 && target <= 16) << target;
  const auto length = [&](int tensor, bool sequence, int context) {
    c.parallel.tensor = tensor, c.parallel.sequence = sequence, c.parallel.context = context;
    const nn::BatchShape shape = data::batch_shapes(c).at(0);
    EXPECT_EQ(shape.source_length, 56);
    return shape.length;
  };
  EXPECT_EQ(length(1, false, 1), 16);
  EXPECT_EQ(length(3, false, 1), 16);
  EXPECT_EQ(length(3, true, 1), 24);
  EXPECT_EQ(length(32, true, 1), 32);
  EXPECT_EQ(length(1, false, 2), 16);
  EXPECT_EQ(length(1, false, 3), 24);   // 2 chunks for each of 3
  EXPECT_EQ(length(1, false, 16), 32);  // 2 chunks for each of 16
  EXPECT_EQ(length(3, true, 2), 24);    // 2 * 6
  c.model.position = config::Position::learned;
  c.model.max_seq_len = 16;
  EXPECT_EQ(length(1, false, 1), 16);
  expect_error(ExitCode::usage, {"max_seq_len 16", "24 tokens", "multiples of 24"},
               [&] { length(3, true, 1); });
  c.model.max_seq_len = 15;
  expect_error(ExitCode::usage, {"max_seq_len 15", "16 tokens"}, [&] { length(1, false, 1); });
  // All but one token may be hidden, in one span: 15 of text are a token, a sentinel and the end.
  const data::SpanLengths most = data::span_lengths(3, 0.9, 3);
  EXPECT_EQ(most.raw, 15);
  EXPECT_EQ(most.hidden, 14);
  EXPECT_EQ(most.spans, 1);
  EXPECT_EQ(most.source, 3);
  EXPECT_EQ(most.target, 16);
}

// Ids that are all given need no tokenizer; 0 is an id.
TEST(FillInMiddle, UsesATokenizerForWhatIsNotGiven) {
  const TemporaryFolder folder;
  config::Config c;
  c.model.vocab_size = 300;
  config::SourceConfig& source = c.data.train;
  source.type = "tokens";
  source.paths = {{test::write_llmc(folder / "a.bin", counting(40), 300)}};
  const auto uses = [&](std::int64_t prefix, std::int64_t middle, std::int64_t suffix,
                        std::int64_t end) {
    source.fim.prefix = prefix, source.fim.middle = middle, source.fim.suffix = suffix;
    source.document_end = end;
    return data::uses_tokenizer(c.model, source);
  };
  source.fim.rate = 0.5;
  EXPECT_FALSE(uses(0, 0, 0, 0));
  EXPECT_FALSE(uses(1, 2, 3, 4));
  EXPECT_TRUE(uses(-1, 2, 3, 4));
  EXPECT_TRUE(uses(1, -1, 3, 4));
  EXPECT_TRUE(uses(1, 2, -1, 4));
  EXPECT_TRUE(uses(1, 2, 3, -1));
  source.fim.rate = 0;
  EXPECT_FALSE(uses(-1, -1, -1, -1));
  source.fim.rate = 1;
  uses(0, 1, 2, 3);
  EXPECT_TRUE(data::fill_in_middle(c, source, *kBytes, 3));
  uses(299, 1, 2, 3);
  EXPECT_TRUE(data::fill_in_middle(c, source, *kBytes, 3));
  uses(0, 300, 2, 3);
  expect_error(ExitCode::usage, {"middle", "id 300", "at least 301"},
               [&] { data::fill_in_middle(c, source, *kBytes, 3); });
  uses(0, 1, -1, 3);
  expect_error(ExitCode::usage, {"suffix"}, [&] { data::fill_in_middle(c, source, *kBytes, 3); });
  // A document of four ids has room for one beside the special ones, one of three for none.
  const data::FillInMiddle middle(
      {.rate = 1, .prefix = 90, .middle = 91, .suffix = 92, .document_end = 9});
  Ids sample{5, 6, 7, 8, 9, 1, 2, 3, 9};
  data::Draws draws = middle.draws(0, 0);
  middle.apply(sample, {}, draws);
  EXPECT_EQ(sample[0], 90);
  EXPECT_EQ(std::multiset<std::int32_t>(sample.begin(), sample.begin() + 4),
            (std::multiset<std::int32_t>{5, 90, 91, 92}));
  EXPECT_EQ(Ids(sample.begin() + 4, sample.end()), (Ids{9, 1, 2, 3, 9}));
}

// Of two special tokens around a text both are needed.
TEST(MaskedLm, CountsTheSpecialsOfItsTokenizer) {
  const TemporaryFolder folder;
  const auto specials = [&](const std::string& vocabulary, bool next_sentence = false) {
    const auto t = tokenizer::load_tokenizer(put(
        folder / "t.json", R"({"model":{"type":"BPE","merges":[],"vocab":{)" + vocabulary + "}}}"));
    return data::MaskedLm::specials(*t, next_sentence);
  };
  EXPECT_EQ(specials(R"("a":0,"[CLS]":1,"[SEP]":2)"), 2);
  EXPECT_EQ(specials(R"("a":0,"[CLS]":1)"), 0);
  EXPECT_EQ(specials(R"("a":0,"[SEP]":1)"), 0);
  EXPECT_EQ(specials(R"("a":0,"<s>":1,"</s>":2)"), 2);  // as of RoBERTa
  EXPECT_EQ(specials(R"("a":0,"<s>":1)"), 0);
  EXPECT_EQ(specials(R"("a":0,"[CLS]":1,"[SEP]":2)", true), 3);
}

TEST(SpanCorruption, LengthsAreThoseOfT5) {
  const data::SpanLengths l =
      data::span_lengths(512, 0.15, 3);  // as in the paper's code: 568 tokens, targets of 114
  EXPECT_EQ(l.raw, 568);
  EXPECT_EQ(l.source, 512);
  EXPECT_EQ(l.target, 114);
  EXPECT_EQ(data::span_lengths(100, 0.9999, 3).raw, 495'000);
  EXPECT_EQ(data::span_lengths(4, 1e-9, 1).raw, 3);
}

TEST(SpanCorruption, SourceAndTargetTogetherAreTheText) {
  const data::SpanLengths l = data::span_lengths(40, 0.15, 3);
  const data::Source s = stream_of_ids(5000, l.raw);
  const data::SpanCorruption batcher(s, data::Sampler(s.samples(), false, 0), *kBytes, 20, l, 300,
                                     5, true);
  const std::map<Field, std::int64_t> widths{
      {Field::source_ids, 40}, {Field::source_mask, 40}, {Field::ids, 16}, {Field::labels, 16}};
  const Read r(batcher, 1, 0, 20, widths);
  expect_right_padded(r[Field::source_mask], 40);
  std::set<Ids> cuts;
  for (std::size_t i = 0; i < 20; ++i) {
    const Ids source(r[Field::source_ids].begin() + static_cast<std::ptrdiff_t>(i * 40),
                     r[Field::source_ids].begin() + static_cast<std::ptrdiff_t>(i * 40) + l.source);
    const Ids labels(r[Field::labels].begin() + static_cast<std::ptrdiff_t>(i * 16),
                     r[Field::labels].begin() + static_cast<std::ptrdiff_t>(i * 16) + l.target);
    EXPECT_EQ(source.back(), tokenizer::ByteSpecials::end);
    EXPECT_EQ(labels.back(), tokenizer::ByteSpecials::end);
    EXPECT_EQ(r[Field::ids][i * 16], tokenizer::ByteSpecials::begin);
    EXPECT_TRUE(std::equal(labels.begin(), labels.end() - 1,
                           r[Field::ids].begin() + static_cast<std::ptrdiff_t>(i * 16) + 1));
    Ids text, where;
    for (auto at = source.begin(); at != source.end() - 1; ++at) {
      if (*at < 260) {
        text.push_back(*at);
        continue;
      }
      where.push_back(static_cast<std::int32_t>(text.size()));
      for (auto t = std::find(labels.begin(), labels.end(), *at) + 1; *t < 250; ++t)
        text.push_back(*t);
    }
    Ids expected = counting(static_cast<std::int32_t>(l.raw),
                            static_cast<std::int32_t>((20 + static_cast<std::int64_t>(i)) * l.raw));
    for (auto& id : expected) id %= 250;
    EXPECT_EQ(text, expected);
    cuts.insert(where);
  }
  EXPECT_GT(cuts.size(), 10u) << "spans lie where they did in other sequences";
  const Read part(batcher, 1, 3, 1, widths);
  EXPECT_TRUE(std::equal(part[Field::source_ids].begin(), part[Field::source_ids].end(),
                         r[Field::source_ids].begin() + 3 * 40));
}

std::unique_ptr<tokenizer::Tokenizer> tokenizer_of(const std::string& name) {
  return tokenizer::load_tokenizer(std::string(TFM_SOURCE_DIR) + "/tests/fixtures/tokenizers/" +
                                   name);
}

// The tokens of a text, with | before each that begins a word, or a sentence.
std::string parted(const tokenizer::Tokenizer& t, const std::string& text, bool sentences = false) {
  const data::Words words(t);
  const Ids ids = t.encode(text);
  std::string out;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const bool begins = i > 0 && (sentences ? words.begins_sentence(ids[i - 1], ids[i])
                                            : words.begins_word(ids[i - 1], ids[i]));
    out += (begins ? "|" : "") + t.token_text(ids[i]);
  }
  return out;
}

TEST(Words, BeginAsTheTokenizerSays) {
  const std::string text = "Antidisestablishment, said no one.\nYet";
  EXPECT_EQ(parted(*kBytes, text), "Antidisestablishment,| said| no| one.|\n|Yet");
  EXPECT_EQ(parted(*tokenizer_of("gpt2.json"), text),
            "Antidisestablishment,| said| no| one.|\n|Yet");
  EXPECT_EQ(parted(*tokenizer_of("bert.json"), text),
            " antidisestablishment| ,| said| no| one| .| yet");
  EXPECT_EQ(parted(*tokenizer_of("t5.json"), "Antidisestablishment, said no one."),
            " Antidisestablishment,| said| no| one.");
  EXPECT_EQ(parted(*tokenizer_of("gpt2.json"), "one<|endoftext|>two"), "one|<|endoftext|>|two");
}

TEST(Words, SentencesEndWithAFullStopBeforeASpace) {
  EXPECT_EQ(parted(*kBytes, "It cost 3.50. He left! Why", true), "It cost 3.50.| He left!| Why");
  EXPECT_EQ(parted(*tokenizer_of("gpt2.json"), "It cost 3.50. He left!", true),
            "It cost 3.50.| He left!");
  EXPECT_EQ(parted(*tokenizer_of("gpt2.json"), "one<|endoftext|>two", true),
            "one<|endoftext|>|two");
  const TemporaryFolder folder;
  put(folder / "tokenizer.json", R"({"model": {"type": "BPE", "merges": [], "vocab":
      {"?\"": 0, "\u0120He": 1, "a": 2}}, "decoder": {"type": "ByteLevel"},
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false,
      "trim_offsets": true, "use_regex": true}})");
  const data::Words words(*tokenizer::load_tokenizer(folder / "tokenizer.json"));
  EXPECT_TRUE(words.begins_sentence(0, 1));
  EXPECT_FALSE(words.begins_sentence(0, 2));
  EXPECT_FALSE(words.begins_sentence(2, 1));
}

// Runs of labels over whole words alone, and as many as without.
TEST(MaskedLm, WholeWordsAreChosenTogether) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; text.size() < 64'001; ++i) text += std::string(1 + i % 7, 'a') + " ";
  Ids ids = kBytes->encode(text);
  std::vector<data::Source::Group> groups(1);
  groups[0].streams.push_back(std::make_unique<data::MemoryTokens>("ids", ids));
  const data::Source s(std::move(groups), 64);
  data::MaskedLm::Options options{64, 260, 0.15, 5, {}};
  options.whole_words = true;
  const data::MaskedLm words(s, data::Sampler(s.samples(), false, 0), *kBytes, 900, options, true);
  const std::map<Field, std::int64_t> widths{{Field::ids, 64}, {Field::labels, 64}};
  const Read r(words, 0, 0, 900, widths), part(words, 0, 33, 1, widths);
  EXPECT_TRUE(std::equal(part[Field::labels].begin(), part[Field::labels].end(),
                         r[Field::labels].begin() + 33 * 64));
  std::int64_t chosen = 0, words_with_both = 0;
  for (std::size_t at = 0; at < r[Field::labels].size(); ++at) {
    const bool is = r[Field::labels][at] >= 0;
    chosen += is;
    if (at % 64 == 0 || ids[at] == ' ') continue;  // a word begins
    EXPECT_EQ(is, r[Field::labels][at - 1] >= 0) << at;
    words_with_both += is && (r[Field::ids][at] == 259) != (r[Field::ids][at - 1] == 259);
  }
  EXPECT_NEAR(static_cast<double>(chosen) / static_cast<double>(r[Field::ids].size()), 0.15, 0.01);
  EXPECT_GT(words_with_both, 100) << "each token becomes a mask, another one or stays by itself";
}

struct Corrupted {
  static constexpr std::int64_t kLength = 101, kRows = 200;
  Corrupted(const data::Source& s, const data::Noise& noise,
            const tokenizer::Tokenizer& t = *kBytes)
      : denoise(s, data::Sampler(s.samples(), false, 0), t, kRows, {noise, 300, 5}, true),
        read(denoise, 1, 0, kRows, pair_widths(kLength)) {}
  Ids source(std::int64_t row) const {  // without its end
    Ids ids;
    for (std::int64_t i = row * kLength;
         read[Field::source_mask][i] == 0 && i < (row + 1) * kLength; ++i)
      ids.push_back(read[Field::source_ids][i]);
    EXPECT_EQ(ids.back(), tokenizer::ByteSpecials::end);
    ids.pop_back();
    return ids;
  }
  Ids target(std::int64_t row) const {
    const auto begin = read[Field::labels].begin() + row * kLength;
    EXPECT_EQ(begin[kLength - 1], tokenizer::ByteSpecials::end);
    EXPECT_EQ(read[Field::ids][row * kLength], tokenizer::ByteSpecials::begin);
    EXPECT_TRUE(
        std::equal(begin, begin + kLength - 1, read[Field::ids].begin() + row * kLength + 1));
    return {begin, begin + kLength - 1};
  }
  data::Denoise denoise;
  Read read;
};

// Between masks the source is the text in order, and what each mask hides follows from it.
TEST(Denoise, MasksSpansOfPoissonsLengths) {
  const data::Source s = stream_of_ids(40'001, 100);
  const Corrupted c(s, {.permute_sentences = 0});
  expect_right_padded(c.read[Field::source_mask], Corrupted::kLength);
  double hidden = 0, empty = 0, spans = 0;
  for (std::int64_t row = 0; row < Corrupted::kRows; ++row) {
    const Ids text = c.target(row), source = c.source(row);
    EXPECT_EQ(text[0], (Corrupted::kRows + row) * 100 % 250);
    EXPECT_EQ(std::ranges::count_if(source, [](auto id) { return id != 259; }), 70);
    std::size_t at = 0;
    std::int64_t masks = 0;
    for (const std::int32_t id : source) {
      spans += id == 259;
      if (id == 259) {
        ++masks;
        continue;
      }
      const std::size_t before = at;
      while (at < text.size() && text[at] != id) ++at;
      ASSERT_LT(at, text.size());
      EXPECT_TRUE(at == before || masks > 0) << "only masks hide tokens";
      empty += at == before && masks == 1;
      hidden += static_cast<double>(at++ - before);
      masks = 0;
    }
  }
  EXPECT_NEAR(spans / Corrupted::kRows, 10, 1);           // 30 tokens of spans of 3
  EXPECT_NEAR(empty / spans, std::exp(-3) * 0.85, 0.02);  // of spans that no other one touches
  EXPECT_GT(hidden, 0.25 * 100 * Corrupted::kRows);
  const Read part(c.denoise, 1, 7, 1, pair_widths(Corrupted::kLength));
  EXPECT_TRUE(std::ranges::equal(
      part[Field::source_ids],
      std::span(c.read[Field::source_ids]).subspan(7 * Corrupted::kLength, Corrupted::kLength)));
  EXPECT_NE(Read(c.denoise, 2, 0, 1, pair_widths(Corrupted::kLength))[Field::source_mask],
            part[Field::source_mask]);
}

TEST(Denoise, ShufflesSentencesAndRotates) {
  std::string text;
  for (int i = 0; text.size() < 40'001; ++i)
    text += std::string(1, static_cast<char>('a' + i % 20)) + std::string(5 + i % 9, '-') + ". ";
  std::vector<data::Source::Group> groups(1);
  groups[0].streams.push_back(std::make_unique<data::MemoryTokens>("ids", kBytes->encode(text)));
  const data::Source s(std::move(groups), 100);
  const auto noise = [](double permuted, double rotated) {
    return data::Noise{.infilled = 1e-9,
                       .mean_span_length = 1000,
                       .permute_sentences = permuted,
                       .rotate = rotated};
  };
  // Sentences that are where they were, by their first letters.
  const auto letters = [](const Ids& ids) {
    Ids out;
    std::ranges::copy_if(ids, std::back_inserter(out),
                         [](std::int32_t id) { return id >= 'a' && id <= 'z'; });
    return out;
  };
  const auto unmoved = [&](const Ids& ids, const Ids& before) {
    const Ids now = letters(ids), then = letters(before);
    double n = 0;
    for (std::size_t i = 0; i < std::min(now.size(), then.size()); ++i) n += now[i] == then[i];
    return n;
  };
  std::int64_t same = 0, rotated = 0;
  double sentences = 0, of_all = 0, of_half = 0;
  const Corrupted c(s, noise(1, 0)), half(s, noise(0.5, 0)), turned(s, noise(0, 0.25));
  for (std::int64_t row = 0; row < Corrupted::kRows; ++row) {
    Ids target = c.target(row), source = c.source(row);
    const Ids some = half.source(row);
    EXPECT_EQ(source.size(), 100u) << "one token is a mask";
    same += std::ranges::equal(source, target);
    sentences += static_cast<double>(letters(target).size());
    of_all += unmoved(source, target), of_half += unmoved(some, target);
    EXPECT_NE(some, target);
    std::ranges::sort(target), std::ranges::sort(source);
    Ids missing;
    std::ranges::set_difference(target, source, std::back_inserter(missing));
    EXPECT_EQ(missing.size(), 1u) << "a permutation but for the mask";
    const Ids plain = turned.target(row), turn = turned.source(row);
    const auto differ = [&](std::size_t by) {
      std::int64_t n = 0;
      for (std::size_t i = 0; i < 100; ++i) n += turn[i] != plain[(i + by) % 100];
      return n;
    };
    std::int64_t fewest = 100;
    for (std::size_t by = 0; by < 100; ++by) fewest = std::min(fewest, differ(by));
    EXPECT_EQ(fewest, 1);
    rotated += differ(0) > 1;
  }
  EXPECT_LT(same, 5);
  EXPECT_NEAR(static_cast<double>(rotated) / Corrupted::kRows, 0.25, 0.08);
  EXPECT_LT(of_all / sentences, 0.25);
  EXPECT_GT(of_half / sentences, 0.35) << "about half of the sentences are not moved";
}

TEST(Denoise, DeletesAndMasksSingleTokens) {
  const data::Source s = stream_of_ids(40'001, 100);
  const Corrupted c(s, {.infilled = 0.01,
                        .mean_span_length = 1000,
                        .permute_sentences = 0,
                        .deleted = 0.2,
                        .masked = 0.3});
  double kept = 0, masks = -static_cast<double>(Corrupted::kRows);  // a span each
  for (std::int64_t row = 0; row < Corrupted::kRows; ++row)
    for (const std::int32_t id : c.source(row)) ++(id == 259 ? masks : kept);
  EXPECT_NEAR(kept / (99 * Corrupted::kRows), 0.5, 0.02);
  EXPECT_NEAR(masks / (99 * Corrupted::kRows), 0.3, 0.02);
}

TEST(Denoise, WholeWordsAreHiddenTogether) {
  std::string text;
  for (int i = 0; text.size() < 40'001; ++i) text += std::string(1 + i % 7, 'a') + " ";
  std::vector<data::Source::Group> groups(1);
  groups[0].streams.push_back(std::make_unique<data::MemoryTokens>("ids", kBytes->encode(text)));
  const data::Source s(std::move(groups), 100);
  const Corrupted c(s, {.permute_sentences = 0, .whole_words = true});
  for (std::int64_t row = 0; row < Corrupted::kRows; ++row) {
    const Ids source = c.source(row);
    for (std::size_t i = 2; i < source.size(); ++i) {
      if (source[i - 1] == 259) {
        EXPECT_TRUE(source[i] == 259 || source[i] == ' ') << row;
      }
    }
  }
}

TEST(Denoise, RefusesATokenizerWithoutAMask) {
  expect_error(ExitCode::usage, {"no mask token", "<mask> or [MASK]"},
               [&] { data::Denoise::check_tokenizer(*tokenizer_of("t5.json"), 40'000, -1); });
  expect_error(ExitCode::usage, {"vocab_size 259", "mask token"},
               [] { data::Denoise::check_tokenizer(*kBytes, 259, -1); });
}

TEST(PrefixLm, SidesTogetherAreTheText) {
  const data::Source s = stream_of_ids(4001, 10);
  const data::PrefixLm lm(s, data::Sampler(s.samples(), false, 0), data::SentenceIds{1, 2, 2}, 200,
                          5, true);
  const Read r(lm, 0, 0, 200, pair_widths(10)), part(lm, 0, 9, 1, pair_widths(10));
  EXPECT_TRUE(
      std::ranges::equal(part[Field::source_ids], std::span(r[Field::source_ids]).subspan(90, 10)));
  std::map<std::ptrdiff_t, int> cuts;
  for (std::ptrdiff_t i = 0; i < 200; ++i) {
    const std::ptrdiff_t cut =
        std::ranges::count(std::span(r[Field::source_mask]).subspan(10 * i, 10), 0) - 1;
    ++cuts[cut];
    Ids text(r[Field::source_ids].begin() + 10 * i, r[Field::source_ids].begin() + 10 * i + cut);
    EXPECT_EQ(r[Field::source_ids][10 * i + cut], 2);
    EXPECT_EQ(r[Field::ids][10 * i], 1);
    EXPECT_EQ(r[Field::labels][10 * i + 10 - cut], 2);
    text.insert(text.end(), r[Field::labels].begin() + 10 * i,
                r[Field::labels].begin() + 10 * i + 10 - cut);
    Ids expected = counting(10, static_cast<std::int32_t>(10 * i));
    for (auto& id : expected) id %= 250;
    EXPECT_EQ(text, expected);
  }
  EXPECT_EQ(cuts.size(), 9u);
  for (const auto& [cut, times] : cuts) EXPECT_NEAR(times, 22, 18) << cut;
}

TEST(PrefixLm, OfADecoderLearnsTheRest) {
  const data::Source s = stream_of_ids(4001, 10);
  const data::PrefixLm lm(s, data::Sampler(s.samples(), false, 0), {}, 200, 5, true);
  const Read r(lm, 0, 0, 200, {{Field::ids, 10}, {Field::labels, 10}, {Field::prefix, 1}});
  std::set<std::int32_t> prefixes;
  for (std::int32_t i = 0; i < 200; ++i) {
    const std::int32_t prefix = r[Field::prefix][static_cast<std::size_t>(i)];
    prefixes.insert(prefix);
    for (std::int32_t t = 0; t < 10; ++t) {
      const auto at = static_cast<std::size_t>(10 * i + t);
      EXPECT_EQ(r[Field::ids][at], (10 * i + t) % 250);
      EXPECT_EQ(r[Field::labels][at], t < prefix - 1 ? -1 : (10 * i + t + 1) % 250);
    }
  }
  EXPECT_EQ(prefixes, (std::set<std::int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(FillInMiddle, RearrangesEachDocumentWithinItself) {
  const data::Source s = stream_of_ids(40'001, 40);
  const auto dataset = [&](double rate, double spm) {
    return data::NextToken(s, data::Sampler(s.samples(), false, 0), 500, true, {},
                           data::FillInMiddle({.rate = rate,
                                               .spm_rate = spm,
                                               .prefix = 260,
                                               .middle = 261,
                                               .suffix = 262,
                                               .document_begin = 20,
                                               .document_end = 19,
                                               .seed = 5}));
  };
  const std::map<Field, std::int64_t> widths{{Field::ids, 40}, {Field::labels, 40}};
  const Read none(dataset(0, 0), 0, 0, 500, widths), all(dataset(1, 0), 0, 0, 500, widths),
      some(dataset(0.4, 0.5), 0, 0, 500, widths), part(dataset(0.4, 0.5), 0, 7, 1, widths);
  EXPECT_TRUE(std::ranges::equal(part[Field::ids], std::span(some[Field::ids]).subspan(280, 40)));
  double rearranged = 0, spm = 0, documents = 0;
  for (const Read* r : {&all, &some})
    for (std::size_t row = 0; row < 500; ++row) {
      Ids ids((*r)[Field::ids].begin() + static_cast<std::ptrdiff_t>(40 * row),
              (*r)[Field::ids].begin() + static_cast<std::ptrdiff_t>(40 * row) + 40);
      EXPECT_TRUE(std::equal(ids.begin() + 1, ids.end(),
                             (*r)[Field::labels].begin() + static_cast<std::ptrdiff_t>(40 * row)));
      ids.push_back((*r)[Field::labels][40 * row + 39]);
      Ids text(none[Field::ids].begin() + static_cast<std::ptrdiff_t>(40 * row),
               none[Field::ids].begin() + static_cast<std::ptrdiff_t>(40 * row) + 40);
      text.push_back(none[Field::labels][40 * row + 39]);
      for (std::size_t begin = 0, end = 0; begin < 41; begin = end) {
        while (end < 41 && text[end] != 19) ++end;
        std::size_t from = begin, to = end;  // without what begins and ends the document
        from += text[from] == 20;
        if (end < 41) {
          EXPECT_EQ(ids[end++], 19);
        }
        const Ids got(ids.begin() + static_cast<std::ptrdiff_t>(from),
                      ids.begin() + static_cast<std::ptrdiff_t>(to)),
            was(text.begin() + static_cast<std::ptrdiff_t>(from),
                text.begin() + static_cast<std::ptrdiff_t>(to));
        documents += r == &some && was.size() > 3;
        if (got == was) {
          EXPECT_TRUE(r == &some || was.size() <= 3);
          continue;
        }
        ASSERT_EQ(got[0], 260);
        const auto suffix = std::ranges::find(got, 262), middle = std::ranges::find(got, 261);
        const bool is_spm = suffix == got.begin() + 1 && got.end() - middle > 1 &&
                            (suffix + 1 == middle || *(middle + 1) < *(suffix + 1));
        rearranged += r == &some, spm += r == &some && is_spm;
        Ids joined(got.begin() + 1, suffix);
        joined.insert(joined.end(), middle + 1, got.end());
        joined.insert(joined.end(), suffix + 1, middle);
        EXPECT_EQ(joined, Ids(was.begin(), was.end() - 3));
      }
    }
  EXPECT_NEAR(rearranged / documents, 0.4, 0.07);
  EXPECT_NEAR(spm / rearranged, 0.5, 0.15);
}

TEST(RunData, FindsTheTokensOfFim) {
  const TemporaryFolder folder;
  const std::string text = put(folder / "text", std::string(300, 'x'));
  const auto data_of = [&](const std::string& more) {
    return data::RunData(config::parse_config(
        "model: {family: decoder, vocab_size: 300, d_model: 8, n_layers: 1, n_heads: 1}\n"
        "train: {seq_len: 32, global_batch_size: 2}\ndata: {train: {type: text, path: " +
            text + ", fim: {rate: 1, " + more + "}}}\n",
        "test", {}));
  };
  expect_error(ExitCode::usage, {"no token of the prefix", "<|fim_prefix|>", "fim.prefix"},
               [&] { data_of("middle: 261"); });
  expect_error(ExitCode::usage, {"vocab_size 300", "suffix", "400"},
               [&] { data_of("prefix: 260, middle: 261, suffix: 400"); });
  const auto data = data_of("prefix: 260, middle: 261, suffix: 262");
  EXPECT_EQ(Read(*data.train, 0, 0, 1, {{Field::ids, 32}, {Field::labels, 32}})[Field::ids][0],
            260);
}

// Documents of a file of lines end with the tokenizer's id for them, in sequences that join them.
TEST(RunData, FimRearrangesEachDocumentOfJoinedLines) {
  const TemporaryFolder folder;
  std::string lines;
  for (int i = 0; i < 40; ++i) lines += "{\"text\": \"" + std::string(6, 'a' + i % 3) + "\"}\n";
  const std::string path = put(folder / "text.jsonl", lines);
  for (const std::string end : {"", ", document_end: 9"}) {
    const data::RunData data(config::parse_config(
        "model: {family: decoder, vocab_size: 300, d_model: 8, n_layers: 1, n_heads: 1}\n"
        "train: {seq_len: 32, global_batch_size: 1}\ndata: {train: {type: text, path: " +
            path + end + ", fim: {rate: 1, prefix: 260, middle: 261, suffix: 262}}}\n",
        "test", {}));
    const Ids ids = Read(*data.train, 0, 0, 1, {{Field::ids, 32}, {Field::labels, 32}})[Field::ids];
    EXPECT_EQ(std::ranges::count(ids, end.empty() ? tokenizer::ByteSpecials::end : 9), 4);
    EXPECT_EQ(std::ranges::count(ids, 260), 5) << "32 ids have the beginning of five documents";
  }
}

}  // namespace
}  // namespace tfm
