// Pairs of texts, which are sequences of their own: what a batch holds, and which files are
// refused.
#include <gtest/gtest.h>

#include <set>

#include "data/embedding_texts.h"
#include "support/data_files.h"

namespace tfm {
namespace {

using test::expect_error;
using test::Ids;
using test::put;
using test::TemporaryFolder;

class EmbeddingTextsTest : public testing::Test {
 protected:
  static constexpr int kBegin = tokenizer::ByteSpecials::begin, kEnd = tokenizer::ByteSpecials::end;
  TemporaryFolder folder_;
  static inline const std::unique_ptr<tokenizer::Tokenizer> tokenizer_ =
      tokenizer::load_tokenizer("bytes");

  config::Config configuration(const std::string& file, const std::string& content) {
    config::Config c;
    c.model.family = config::Family::encoder;
    c.model.vocab_size = 260;
    c.model.heads = {{.type = "embed", .name = "embed", .labels = {}}};
    c.train.seq_len = 4;
    c.train.global_batch_size = 4;
    c.data.train.type = "labelled";
    c.data.train.paths = {{put(folder_ / file, content), 1}};
    c.data.train.text = "a", c.data.train.text_pair = "b";
    return c;
  }
  static data::EmbeddingTexts open(const config::Config& c, bool endless = false) {
    return {c, c.data.train, *tokenizer_, endless};
  }
  static std::map<Field, Ids> read(const data::EmbeddingTexts& d, std::int64_t index,
                                   std::int64_t first, std::int64_t count) {
    std::map<Field, Ids> data;
    BatchFields fields;
    for (const Field f : {Field::ids, Field::mask, Field::positives}) {
      const std::int64_t width = f == Field::positives ? 1 : 4;
      data[f].resize(static_cast<std::size_t>(count * width), -99);
      fields[f] = data[f];
    }
    d.fill(index, first, count, fields);
    return data;
  }
};

TEST_F(EmbeddingTextsTest, RowsAreConsecutiveSequences) {
  config::Config c = configuration("x.tsv", "b\ta\tc\nB\tA\tC\nD\txyz\tE\nG\tF\tH\n");
  const data::EmbeddingTexts d = open(c);
  EXPECT_EQ(d.texts(), 6);
  EXPECT_EQ(d.cut(), 1);
  EXPECT_EQ(d.batches(), 2);
  auto r = read(d, 0, 0, 4);
  EXPECT_EQ(r[Field::ids], (Ids{kBegin, 'A', kEnd, 0, kBegin, 'B', kEnd, 0,  //
                                kBegin, 'x', 'y', kEnd, kBegin, 'D', kEnd, 0}));
  EXPECT_EQ(r[Field::mask], (Ids{0, 0, 0, -1, 0, 0, 0, -1, 0, 0, 0, 0, 0, 0, 0, -1}));
  EXPECT_EQ(r[Field::positives], (Ids{0, -1, 1, -1}));
  // The last batch is filled up with the first row, which has no label there.
  EXPECT_EQ(d.batch(1).sequences, 4);
  r = read(d, 1, 0, 4);
  EXPECT_EQ(r[Field::ids][1], 'F');
  EXPECT_EQ(r[Field::ids][9], 'A');
  EXPECT_EQ(r[Field::positives], (Ids{0, -1, -1, -1}));
  EXPECT_EQ(read(d, 1, 2, 2)[Field::positives], (Ids{-1, -1}));

  c.data.train.negative = "c";
  c.train.global_batch_size = 6;
  c.model.heads[0].group = 1;
  r = read(open(c), 0, 0, 6);
  EXPECT_EQ(r[Field::positives], (Ids{0, -1, -1, 0, -1, -1}));
  EXPECT_EQ(r[Field::ids][9], 'C');
  c.model.heads[0].group = 0;
  EXPECT_EQ(read(open(c), 0, 0, 6)[Field::positives], (Ids{0, -1, -1, 2, -1, -1}));
}

TEST_F(EmbeddingTextsTest, NoBatchHasARowTwice) {
  std::string rows = "a\tb\n";
  for (int i = 0; i < 7; ++i) rows += std::string(1, static_cast<char>('a' + i)) + "\tx\n";
  config::Config c = configuration("x.tsv", rows);
  c.data.train.shuffle = true;
  const data::EmbeddingTexts d = open(c, true);
  EXPECT_EQ(d.batches(), 3);
  std::set<std::int32_t> drawn, left_out;
  for (std::int64_t index = 0; index < 30; ++index) {
    if (index % 3 == 0) drawn.clear();
    auto r = read(d, index, 0, 4);
    EXPECT_EQ(r[Field::positives], (Ids{0, -1, 1, -1}));
    EXPECT_TRUE(drawn.insert(r[Field::ids][1]).second);
    EXPECT_TRUE(drawn.insert(r[Field::ids][9]).second);
    for (std::int32_t id = 'a'; index % 3 == 2 && id < 'a' + 7; ++id)
      if (!drawn.contains(id)) left_out.insert(id);
  }
  EXPECT_GT(left_out.size(), 2u);
}

TEST_F(EmbeddingTextsTest, JsonLinesAndWhatIsRefused) {
  config::Config c =
      configuration("x.jsonl", "{\"a\": \"q\", \"b\": \"d\"}\n{\"b\": \"e\", \"a\": \"r\"}\n");
  EXPECT_EQ(read(open(c), 0, 2, 2)[Field::ids][5], 'e');
  const data::TextPairs pairs = data::text_pairs(c.data.train);
  EXPECT_EQ(pairs.queries, (std::vector<std::string>{"q", "r"}));
  EXPECT_EQ(pairs.documents, (std::vector<std::string>{"d", "e"}));
  const std::vector<std::string> texts{"k", "l", "m", "n", "o"};
  const data::EmbeddingTexts alone(c, *tokenizer_, texts);
  EXPECT_EQ(alone.batches(), 2);
  EXPECT_EQ(alone.batch(1).sequences, 1);
  EXPECT_EQ(read(alone, 1, 0, 1)[Field::ids], (Ids{kBegin, 'o', kEnd, 0}));
  c.train.global_batch_size = 6;
  expect_error(ExitCode::input, {"found 2 rows; expected at least the 3 of a batch"},
               [&] { open(c); });
  c.data.train.negative = "c";
  expect_error(ExitCode::input, {"c"}, [&] { open(c); });
  c = configuration("y.tsv", "a\tb\nx\t\n");
  expect_error(ExitCode::input, {"y.tsv:2: column 'b' is empty; expected a text"},
               [&] { open(c); });
}

}  // namespace
}  // namespace tfm
