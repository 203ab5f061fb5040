// Texts with labels: what a batch holds for each family, which files and labels are refused.
#include <gtest/gtest.h>

#include <set>

#include "data/labelled.h"
#include "data/objective.h"
#include "support/data_files.h"

namespace tfm {
namespace {

using test::expect_error;
using test::Ids;
using test::put;
using test::TemporaryFolder;

const std::unique_ptr<tokenizer::Tokenizer> kByteIds = tokenizer::load_tokenizer("bytes");
constexpr const char* kThree =
    "id\ttext\tpair\tlabel\n0\tab\txyz\t1\n1\tcde\tw\t0\n2\tfghijk\tlmn\t2\n";

class LabelledTest : public testing::Test {
 protected:
  static constexpr int kBegin = tokenizer::ByteSpecials::begin, kEnd = tokenizer::ByteSpecials::end;
  TemporaryFolder folder_;

  config::Config configuration(config::Family family, const std::string& file,
                               const std::string& content) {
    config::Config c;
    c.model.family = family;
    c.model.vocab_size = 260;
    c.model.heads = {{.type = "classify", .name = "classify", .classes = 3, .labels = {}}};
    c.train.seq_len = 8;
    c.train.global_batch_size = 2;
    c.data.train.type = "labelled";
    c.data.train.paths = {{put(folder_ / file, content), 1}};
    return c;
  }
  static data::Labelled open(const config::Config& c, bool endless = false) {
    return {c, c.data.train, *kByteIds, endless};
  }
  // A start refuses it, and before it a check.
  static void expect_refused(const config::Config& c, const std::string& message) {
    expect_error(ExitCode::input, {message}, [&] { open(c); });
    expect_error(ExitCode::input, {message}, [&] {
      data::labelled_objective().check_file(c.data.train.paths[0].path, c, c.data.train);
    });
  }
  // Two sequences of batch 0 unless said, eight ids each.
  static std::map<Field, Ids> read(const data::Labelled& d, std::int64_t index = 0,
                                   std::int64_t first = 0, std::int64_t count = 2) {
    std::map<Field, Ids> data;
    BatchFields fields;
    for (const FieldInfo& f : kFields) {
      const auto width = f.width == FieldWidth::one ? 1 : 8;
      data[f.field].resize(static_cast<std::size_t>(count * width), -99);
      fields[f.field] = data[f.field];
    }
    d.fill(index, first, count, fields);
    return data;
  }
};

TEST_F(LabelledTest, AnEncoderReadsTextsBetweenItsSpecials) {
  config::Config c = configuration(config::Family::encoder, "a.tsv", kThree);
  const data::Labelled one = open(c);
  EXPECT_EQ(one.texts(), 3);
  EXPECT_EQ(one.batches(), 2);
  EXPECT_EQ(one.batch(1).sequences, 1);
  EXPECT_EQ(one.cut(), 0);
  auto r = read(one);
  EXPECT_EQ(r[Field::ids], (Ids{kBegin, 'a', 'b', kEnd, 0, 0, 0, 0,  //
                                kBegin, 'c', 'd', 'e', kEnd, 0, 0, 0}));
  EXPECT_EQ(r[Field::mask], (Ids{0, 0, 0, 0, -1, -1, -1, -1, 0, 0, 0, 0, 0, -1, -1, -1}));
  EXPECT_EQ(r[Field::labels], Ids(16, -1));
  EXPECT_EQ(r[Field::token_types], Ids(16, 0));
  EXPECT_EQ(r[Field::sentence_labels], (Ids{1, 0}));

  c.data.train.text_pair = "pair";
  const data::Labelled two = open(c);
  EXPECT_EQ(two.cut(), 1);
  r = read(two, 0, 0, 1);
  EXPECT_EQ(r[Field::ids], (Ids{kBegin, 'a', 'b', kEnd, 'x', 'y', 'z', kEnd}));
  EXPECT_EQ(r[Field::token_types], (Ids{0, 0, 0, 0, 1, 1, 1, 1}));
  // Five of nine ids have room; the shorter text keeps its half.
  r = read(two, 1, 0, 1);
  EXPECT_EQ(r[Field::ids], (Ids{kBegin, 'f', 'g', 'h', kEnd, 'l', 'm', kEnd}));
}

TEST_F(LabelledTest, AShortTextLeavesItsRoomToTheOther) {
  for (const auto& [texts, ids] :
       {std::pair{"a\tuvwxyz", Ids{kBegin, 'a', kEnd, 'u', 'v', 'w', 'x', kEnd}},
        {"uvwxyz\ta", Ids{kBegin, 'u', 'v', 'w', 'x', kEnd, 'a', kEnd}}}) {
    config::Config c = configuration(config::Family::encoder, "a.tsv",
                                     std::string("text\tpair\tlabel\n") + texts + "\t1\n");
    c.train.global_batch_size = 1;
    c.data.train.text_pair = "pair";
    EXPECT_EQ(read(open(c), 0, 0, 1)[Field::ids], ids) << texts;
  }
}

// As transformers' RobertaTokenizer.
TEST_F(LabelledTest, RobertasTokensStandTwiceBetweenTexts) {
  const auto roberta = tokenizer::load_tokenizer(std::string(TFM_SOURCE_DIR) +
                                                 "/tests/fixtures/tokenizers/bart.json");
  config::Config c =
      configuration(config::Family::encoder, "a.tsv", "text\tpair\tlabel\n!\t#$\t1\n");
  c.model.vocab_size = 700, c.model.type_vocab_size = 1;
  c.train.global_batch_size = 1;
  c.data.train.text_pair = "pair";
  auto r = read({c, c.data.train, *roberta, false}, 0, 0, 1);
  EXPECT_EQ(r[Field::ids], (Ids{0, 4, 2, 2, 6, 7, 2, 0}));
  EXPECT_EQ(r[Field::mask], (Ids{0, 0, 0, 0, 0, 0, 0, -1}));
  EXPECT_EQ(r[Field::token_types], Ids(8, 0));
  c.train.seq_len = 6;
  EXPECT_EQ(data::Labelled(c, c.data.train, *roberta, false).cut(), 1);
}

TEST_F(LabelledTest, ADecoderReadsTextsAndPredictsTheirNextIds) {
  config::Config c = configuration(config::Family::decoder, "a.tsv", kThree);
  auto r = read(open(c));
  EXPECT_EQ(r[Field::ids], (Ids{'a', 'b', 0, 0, 0, 0, 0, 0, 'c', 'd', 'e', 0, 0, 0, 0, 0}));
  EXPECT_EQ(r[Field::labels],
            (Ids{'b', -1, -1, -1, -1, -1, -1, -1, 'd', 'e', -1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(r[Field::mask], (Ids{0, 0, -1, -1, -1, -1, -1, -1, 0, 0, 0, -1, -1, -1, -1, -1}));
  c.data.train.text_pair = "pair";
  c.data.add_begin = config::AddBegin::on;
  r = read(open(c), 0, 0, 1);
  EXPECT_EQ(r[Field::ids], (Ids{kBegin, 'a', 'b', kEnd, 'x', 'y', 'z', 0}));
  EXPECT_EQ(r[Field::labels], (Ids{'a', 'b', kEnd, 'x', 'y', 'z', -1, -1}));
}

TEST_F(LabelledTest, AnEncoderDecoderReadsTheTextOnBothSides) {
  auto r = read(open(configuration(config::Family::encoder_decoder, "a.tsv", kThree)), 0, 0, 1);
  EXPECT_EQ(r[Field::source_ids], (Ids{'a', 'b', kEnd, 0, 0, 0, 0, 0}));
  EXPECT_EQ(r[Field::source_mask], (Ids{0, 0, 0, -1, -1, -1, -1, -1}));
  EXPECT_EQ(r[Field::ids], (Ids{kBegin, 'a', 'b', 0, 0, 0, 0, 0}));
  EXPECT_EQ(r[Field::labels], (Ids{'a', 'b', kEnd, -1, -1, -1, -1, -1}));
}

TEST_F(LabelledTest, TokensOfAnEncoderAreMaskedButForItsSpecials) {
  std::string rows = "text\tlabel\n";
  for (int i = 0; i < 300; ++i) rows += "abcdef\t" + std::to_string(i % 3) + "\n";
  config::Config c = configuration(config::Family::encoder, "a.tsv", rows);
  c.train.global_batch_size = 300;
  c.data.train.mask_probability = 0.5;
  const data::Labelled d = open(c);
  const auto r = read(d, 0, 0, 300);
  int chosen = 0, hidden = 0;
  for (std::size_t i = 0; i < r.at(Field::ids).size(); ++i) {
    const int label = r.at(Field::labels)[i], id = r.at(Field::ids)[i];
    const auto at = static_cast<int>(i % 8);
    EXPECT_EQ(label, label < 0 ? -1 : 'a' + at - 1);
    if (at == 0 || at == 7) {
      EXPECT_EQ(id, at == 0 ? kBegin : kEnd);
      EXPECT_EQ(label, -1);
    }
    chosen += label >= 0, hidden += id == tokenizer::ByteSpecials::mask;
  }
  EXPECT_NEAR(chosen, 900, 90);
  EXPECT_NEAR(hidden, 720, 90);
  auto part = read(d, 0, 100, 2);
  EXPECT_EQ(part[Field::ids], Ids(r.at(Field::ids).begin() + 800, r.at(Field::ids).begin() + 816));
}

TEST_F(LabelledTest, AnEpochHoldsEachTextOnceInAnOrderOfTheSeed) {
  std::string rows = "text\tlabel\n";
  for (char k = 'a'; k < 'k'; ++k) rows += std::string(1, k) + "\t0\n";
  config::Config c = configuration(config::Family::decoder, "a.tsv", rows);
  c.data.train.shuffle = true;
  const data::Labelled d = open(c, true);
  std::vector<int> order;
  for (std::int64_t i = 0; i < 10; ++i) {
    auto r = read(d, i);
    order.push_back(r[Field::ids][0]), order.push_back(r[Field::ids][8]);
  }
  const std::vector<int> first(order.begin(), order.begin() + 10),
      second(order.begin() + 10, order.end());
  EXPECT_EQ(std::set<int>(first.begin(), first.end()).size(), 10u);
  EXPECT_EQ(std::set<int>(second.begin(), second.end()).size(), 10u);
  EXPECT_NE(first, second);
  EXPECT_EQ(d.batch(1000).sequences, 2);
}

TEST_F(LabelledTest, JsonLinesHaveNamesOrNumbers) {
  config::Config c = configuration(config::Family::decoder, "a.jsonl",
                                   R"({"s": "ab", "label": "good", "more": [1]})"
                                   "\n\n"
                                   R"({"label": "bad", "s": "c\td"})"
                                   "\n");
  c.model.heads[0].labels = {"bad", "neither", "good"};
  c.data.train.text = "s";
  auto r = read(open(c));
  EXPECT_EQ(r[Field::sentence_labels], (Ids{2, 0}));
  EXPECT_EQ(r[Field::ids][9], '\t');
  c = configuration(config::Family::decoder, "b.jsonl", R"({"text": "ab", "label": 2})");
  EXPECT_EQ(read(open(c), 0, 0, 1)[Field::sentence_labels], (Ids{2}));
}

TEST_F(LabelledTest, WordsHaveTheirLabelsAtTheirFirstTokens) {
  for (const auto& [file, content] :
       {std::pair{"a.tsv", "text\tlabel\nab cd e\tB O O\n"},
        {"a.jsonl", R"({"text": ["ab", "cd", "e"], "label": ["B", "O", "O"]})"},
        {"b.jsonl", R"({"text": "ab cd e", "label": "B O O"})"},
        {"a.conll", "-DOCSTART- -X- O\n\nab NN B\ncd VB O\ne X O\n\n\nf X B\n"}}) {
    config::Config c = configuration(config::Family::encoder, file, content);
    c.model.heads = {{.type = "tag", .name = "tag", .classes = 2, .labels = {"O", "B"}}};
    auto r = read(open(c), 0, 0, 1);
    EXPECT_EQ(r[Field::ids], (Ids{kBegin, 'a', 'b', ' ', 'c', 'd', ' ', kEnd})) << file;
    EXPECT_EQ(r[Field::token_labels], (Ids{-1, 1, -1, -1, 0, -1, -1, -1})) << file;
    c.model.family = config::Family::decoder;
    EXPECT_EQ(read(open(c), 0, 0, 1)[Field::token_labels], (Ids{1, -1, -1, 0, -1, -1, 0, -1}));
  }
}

TEST_F(LabelledTest, TheTokensOfAWordBeginWithItsFirst) {
  constexpr std::string_view text = "Anna left  Nuremberg, unhappily";
  for (const char* file : {"bert_cased", "gpt2", "llama2", "t5"}) {
    const auto tokenizer = tokenizer::load_tokenizer(
        std::string(TFM_SOURCE_DIR) + "/tests/fixtures/tokenizers/" + file + ".json");
    std::vector<std::optional<std::size_t>> first;
    const Ids ids = data::encode_words(text, *tokenizer, first);
    EXPECT_EQ(ids, tokenizer->encode(text));
    const auto words = data::words_of(text);
    ASSERT_EQ(first.size(), words.size());
    for (std::size_t w = 0; w < words.size(); ++w) {
      ASSERT_TRUE(first[w]) << file << words[w];
      const std::size_t end = w + 1 < words.size() ? *first[w + 1] : ids.size();
      std::string decoded = tokenizer->decode(std::span(ids).subspan(*first[w], end - *first[w]));
      std::erase(decoded, ' ');
      EXPECT_EQ(decoded, words[w]) << file;
    }
  }
  std::vector<std::optional<std::size_t>> first;
  data::encode_words("a \x01 b",
                     *tokenizer::load_tokenizer(std::string(TFM_SOURCE_DIR) +
                                                "/tests/fixtures/tokenizers/bert.json"),
                     first);
  ASSERT_EQ(first.size(), 3u);
  EXPECT_TRUE(first[0] && !first[1] && first[2]);  // BERT's normalizer takes control characters out
}

// Texts to predict for, which have no labels.
TEST_F(LabelledTest, LinesAreTextsWithoutLabels) {
  config::Config c = configuration(config::Family::encoder, "a.tsv", kThree);
  const std::vector<std::string> lines{"ab c", "d", "ef"};
  c.model.heads[0].labels = {"x", "y", "z"};
  const data::Labelled texts(c, c.data.train, *kByteIds, lines);
  EXPECT_EQ(texts.texts(), 3);
  EXPECT_EQ(texts.batches(), 2);
  EXPECT_EQ(texts.batch(1).sequences, 1);
  EXPECT_EQ(read(texts)[Field::ids], (Ids{kBegin, 'a', 'b', ' ', 'c', kEnd, 0, 0,  //
                                          kBegin, 'd', kEnd, 0, 0, 0, 0, 0}));
  for (const std::vector<std::string>& names :
       {std::vector<std::string>{}, std::vector<std::string>{"O", "B"}}) {
    c.model.heads = {{.type = "tag", .name = "tags", .classes = 2, .labels = names}};
    EXPECT_EQ(data::Labelled(c, c.data.train, *kByteIds, lines).texts(), 3);
  }
  c.model.heads = {{.type = "regress", .name = "score", .labels = {}},
                   {.type = "classify", .name = "kind", .classes = 2, .labels = {"p", "q"}}};
  c.data.train.text_pair = "pair";
  const std::vector<std::string> pairs{"ab\tc", "d\te"};
  EXPECT_EQ(read({c, c.data.train, *kByteIds, pairs}, 0, 0, 1)[Field::ids],
            (Ids{kBegin, 'a', 'b', kEnd, 'c', kEnd, 0, 0}));
  expect_error(ExitCode::input, {"line 2: no tab"}, [&] {
    const std::vector<std::string> bad{"ab\tc", "d"};
    data::Labelled(c, c.data.train, *kByteIds, bad);
  });
}

// A decoder has an id before a text alone, which takes a place, and none behind it.
TEST_F(LabelledTest, ATextFillsAllPlacesOfASequence) {
  for (const auto& [family, add, most] :
       {std::tuple{config::Family::decoder, config::AddBegin::automatic, 8},
        {config::Family::decoder, config::AddBegin::on, 7},
        {config::Family::encoder, config::AddBegin::automatic, 6},
        {config::Family::encoder_decoder, config::AddBegin::automatic, 7}}) {
    for (const int more : {0, 1}) {
      config::Config c = configuration(
          family, "a.tsv",
          "text\tlabel\n" + std::string(static_cast<std::size_t>(most + more), 'a') + "\t0\n");
      c.data.add_begin = add;
      const data::Labelled d = open(c);
      EXPECT_EQ(d.cut(), more);
      EXPECT_EQ(d.tokens(), most);
      EXPECT_EQ(std::ranges::count(read(d, 0, 0, 1)[Field::ids], 'a'), most);
    }
  }
}

// The share of labelled rows is known in advance where tokens are masked; the only note of an
// epoch is of one that is smaller than a batch.
TEST_F(LabelledTest, ShapesAndNotes) {
  config::Config c = configuration(config::Family::encoder, "a.tsv", kThree);
  EXPECT_EQ(data::labelled_objective().shapes(c)[0].labelled, 1);
  c.data.train.mask_probability = 0.2;
  EXPECT_EQ(data::labelled_objective().shapes(c)[0].labelled, 0.2);
  for (const auto& [batch, endless, notes] :
       {std::tuple{3, true, 0}, {4, true, 1}, {4, false, 0}, {2, true, 0}}) {
    c.train.global_batch_size = batch;
    data::Opening o{c, c.data.train, *kByteIds, endless};
    data::labelled_objective().open(o);
    EXPECT_EQ(o.notes.size(), static_cast<std::size_t>(notes)) << batch;
    EXPECT_EQ(o.tokens, 2 + 3 + 6);
  }
}

// The first column is the word and the last its label; documents' marks stand between texts.
TEST_F(LabelledTest, FilesOfWordsHaveColumnsBetweenThem) {
  config::Config c = configuration(config::Family::encoder, "a.conll",
                                   "\xEF\xBB\xBF-DOCSTART- -X- O\n\nab NN 1\nc VB x 0\n\n\n"
                                   "-DOCSTART- -X- O\nd NN 1\n");
  c.model.heads = {{.type = "tag", .name = "tags", .classes = 2, .labels = {}}};
  const data::Labelled d = open(c);
  ASSERT_EQ(d.texts(), 2);
  auto r = read(d);
  EXPECT_EQ(r[Field::ids], (Ids{kBegin, 'a', 'b', ' ', 'c', kEnd, 0, 0,  //
                                kBegin, 'd', kEnd, 0, 0, 0, 0, 0}));
  EXPECT_EQ(r[Field::token_labels], (Ids{-1, 1, -1, -1, 0, -1, -1, -1,  //
                                         -1, 1, -1, -1, -1, -1, -1, -1}));
  c.data.train.text_pair = "pair";
  expect_refused(c, "a file *.conll has one column of labels and no text_pair");
  c.data.train.text_pair = "";
  c.model.heads.push_back({.type = "classify", .name = "kind", .classes = 2, .labels = {}});
  expect_refused(c, "a file *.conll has one column of labels and no text_pair");
}

TEST_F(LabelledTest, SeveralHeadsReadTheColumnsOfTheirNames) {
  config::Config c = configuration(config::Family::encoder, "a.tsv",
                                   "text\tkind\ttags\tscore\nab c\t2\t0 1\t-1.5\nd\t\t\t\n");
  c.model.heads = {{.type = "classify", .name = "kind", .classes = 3, .labels = {}},
                   {.type = "tag", .name = "tags", .classes = 2, .labels = {}},
                   {.type = "regress", .name = "score", .labels = {}}};
  data::labelled_objective().check_file(c.data.train.paths[0].path, c, c.data.train);
  auto r = read(open(c));
  EXPECT_EQ(r[Field::sentence_labels], (Ids{2, -1}));
  EXPECT_EQ(r[Field::numbers], (Ids{number_element(-1.5f), kNoNumber}));
  EXPECT_EQ(r[Field::token_labels],
            (Ids{-1, 0, -1, -1, 1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}));
}

TEST_F(LabelledTest, WrongLabelsOfWordsAndNumbersAreNamed) {
  const auto refuses = [&](const char* type, const std::string& file, const std::string& content,
                           const std::string& message) {
    config::Config c = configuration(config::Family::encoder, file, content);
    c.model.heads = {{.type = type, .name = type, .classes = 2, .labels = {}}};
    expect_refused(c, message);
  };
  refuses("tag", "a.tsv", "text\tlabel\nab cd\t0\n", "a.tsv:2: found 2 words and 1 label");
  refuses("tag", "a.tsv", "text\tlabel\nab\t\n", "a.tsv:2: found 1 word and 0 labels");
  refuses("tag", "a.tsv", "text\tlabel\nab\t2\n", "a.tsv:2: the label '2' is no class");
  refuses("tag", "a.conll", "ab 0\n\ncd\n", "a.conll:3: found one column");
  refuses("tag", "a.conll", "\n", "a.conll: the file has no rows");
  refuses("tag", "a.jsonl", R"({"text": ["a b"], "label": [0]})", "a.jsonl:1: text[0]");
  refuses("tag", "a.jsonl", R"({"text": ["a", ""], "label": [0, 0]})", "a.jsonl:1: text[1]");
  refuses("tag", "a.jsonl", R"({"text": [["a"]], "label": [0]})", "a.jsonl:1: text[0]");
  for (const char* number : {"one", "", "1e99", "nan", "1,5", "inf"})
    refuses("regress", "a.tsv", std::string("text\tlabel\nab\t") + number + "\n",
            "a.tsv:2: the label '" + std::string(number) + "' is no number");
}

TEST_F(LabelledTest, WhatIsWrongIsNamedWithItsLine) {
  const auto refuses = [&](const std::string& file, const std::string& content,
                           const std::string& message, std::vector<std::string> labels = {}) {
    config::Config c = configuration(config::Family::encoder, file, content);
    c.model.heads[0].labels = std::move(labels);
    expect_refused(c, message);
  };
  refuses("a.tsv", "text\tclass\nab\t1\n", "a.tsv:1: the header has no column 'label'");
  refuses("a.tsv", "ab\t1\n", "a.tsv:1: the header has no column 'text'");
  refuses("a.tsv", "text\tlabel\nab\t1\nc\td\t1\n", "a.tsv:3: found 3 columns; expected the 2");
  refuses("a.tsv", "text\tlabel\nab\t1\nc\n", "a.tsv:3: found 1 column; expected the 2");
  refuses("a.tsv", "text\tlabel\nab\t1\n\t1\n", "a.tsv:3: column 'text' is empty");
  refuses("a.tsv", "text\tlabel\n", "a.tsv: the file has no rows");
  refuses("a.tsv", "", "a.tsv: the file has no rows");
  refuses("a.tsv", "\xEF\xBB\xBFtext\tlabel\nab\t9\n", "a.tsv:2: the label '9'");
  for (const char* label : {"3", "-1", "1.0", "one", "", " 1", "99999999999"})
    refuses("a.tsv", std::string("text\tlabel\nab\t1\ncd\t") + label + "\n",
            "a.tsv:3: the label '" + std::string(label) + "' is no class of head 'classify'");
  refuses("a.tsv", "text\tlabel\nab\t1\n", "a.tsv:2: the label '1' is none of the labels",
          {"x", "y", "z"});
  refuses("a.jsonl", "{\"text\": \"ab\"}\n",
          "a.jsonl:1: member \"label\" is missing; expected label to be one of text");
  refuses("a.jsonl", "{\"text\": \"a\", \"label\": 1}\n{\"stars\": 1, \"body\": \"b\"}\n",
          "a.jsonl:2: member \"text\" is missing; expected text to be one of body, stars");
  refuses("a.jsonl", "{\"text\": 1, \"label\": 1}\n", "a.jsonl:1: text");
  refuses("a.jsonl", "{\"text\": \"a\", \"label\": 1.5}\n", "a.jsonl:1: the label '1.5'");
  refuses("a.jsonl", "{\"text\": \"a\", \"label\": 1}\n[]\n", "a.jsonl:2");
  refuses("a.jsonl", "{\"text\": \"a\", \"label\": 1}\n{\"text\n", "a.jsonl:2");
}

}  // namespace
}  // namespace tfm
