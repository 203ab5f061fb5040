// Losses, predictions and vectors of a model against its logits; batches of translations.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/task.h"
#include "inference/embeddings.h"
#include "inference/evaluation.h"
#include "inference/predictions.h"
#include "inference/translator.h"
#include "models/registry.h"
#include "support/data_files.h"

namespace tfm {
namespace {

using test::Ids;

comm::RankContext one_rank() {
  return {device::Device::cpu(1), comm::single_mesh(), comm::single_mesh()};
}

inference::LoadedModel loaded_fixture(const std::string& name, config::Config& c) {
  const std::string dir = std::string(TFM_SOURCE_DIR) + "/tests/fixtures/huggingface/" + name;
  c = inference::inference_config(dir, {}, 1);
  return inference::load_model(dir, c, one_rank());
}

// Seven sequences in batches of two; some labels are missing.
class Numbered final : public data::Dataset {
 public:
  static constexpr std::int64_t kTexts = 7, kOfBatch = 2;
  Numbered(Field field, std::int64_t length) : field_(field), length_(length) {}
  GlobalBatch batch(std::int64_t index) const override {
    return {0, std::min(kOfBatch, kTexts - index * kOfBatch)};
  }
  std::int64_t batches() const override { return 4; }
  std::int32_t id(std::int64_t text, std::int64_t at) const {
    return static_cast<std::int32_t>((7 * text + 3 * at) % 60 + 2);
  }
  std::int32_t label(std::int64_t text, std::int64_t at) const {
    return static_cast<std::int32_t>((text + at) % 3) - 1;  // -1: none
  }
  Ids text(std::int64_t t) const {
    Ids ids;
    for (std::int64_t at = 0; at < length_; ++at) ids.push_back(id(t, at));
    return ids;
  }
  void fill(std::int64_t index, std::int64_t first, std::int64_t count,
            const BatchFields& fields) const override {
    for (const auto& [field, to] : fields) {
      const std::int64_t width = info_of(field).width == FieldWidth::one ? 1 : length_;
      for (std::int64_t i = 0; i < count * width; ++i) {
        const std::int64_t text = index * kOfBatch + first + i / width, at = i % width;
        to[static_cast<std::size_t>(i)] = field == Field::ids ? id(text, at)
                                          : field == field_   ? label(text, at)
                                                              : 0;
      }
    }
  }

 private:
  Field field_;
  std::int64_t length_;
};

// A text alone at a time, whose logits have a softmax of their own here.
TEST(Predictions, AreThoseOfEachTextAloneAndMakeTheLoss) {
  for (const auto& [name, field] : {std::pair{"bert_sequences_0", Field::sentence_labels},
                                    {"bert_tokens_0", Field::token_labels}}) {
    config::Config c;
    inference::LoadedModel model = loaded_fixture(name, c);
    const config::HeadConfig head = c.model.heads.at(0);
    ASSERT_EQ(head.classes, 2);
    const std::int64_t length = c.train.seq_len, width = head.summarizes() ? 1 : length;
    const Numbered data(field, length);
    inference::Inference alone(*model.model, model.rank_context, model.weights(),
                               {.sequences = 1, .length = length}, 2, head.name);
    const auto all = inference::predictions(model, c, head, data);
    std::size_t n = 0;
    double loss = 0;
    std::int64_t right = 0;
    for (std::int64_t text = 0; text < Numbered::kTexts; ++text) {
      Ids ids = data.text(text);
      alone.run({{Field::ids, ids}});
      for (std::int64_t at = 0; at < width; ++at) {
        const std::int32_t label = data.label(text, at);
        if (label < 0) continue;
        ASSERT_LT(n, all.size());
        const inference::Prediction& p = all[n++];
        EXPECT_EQ(std::tuple(p.text, p.position, p.label), std::tuple(text, at, label)) << name;
        const std::vector<double> x = alone.row(at);
        for (std::size_t k = 0; k < 2; ++k) EXPECT_NEAR(p.scores.at(k), x[k], 1e-5);
        const double of_1 = 1 / (1 + std::exp(x[0] - x[1]));
        EXPECT_NEAR(p.probability(1), of_1, 1e-5);
        EXPECT_NEAR(p.probability(0), 1 - of_1, 1e-5);
        EXPECT_EQ(p.best(), of_1 > 0.5);
        loss -= std::log(label == 1 ? of_1 : 1 - of_1);
        right += label == p.best();
      }
    }
    EXPECT_EQ(n, all.size());
    const inference::Totals totals = inference::evaluate(model, c, data);
    const auto labels = static_cast<std::int64_t>(n);
    EXPECT_EQ(totals.labels[0], labels);
    EXPECT_EQ(totals.correct[0], right);
    EXPECT_NEAR(totals.mean(), loss / static_cast<double>(labels), 1e-5);
    EXPECT_NEAR(totals.accuracy(), static_cast<double>(right) / static_cast<double>(labels), 1e-12);
    EXPECT_NEAR(totals.perplexity(), std::exp(loss / static_cast<double>(labels)), 1e-5);
    EXPECT_EQ(inference::scores_of(head, all)[0].second, totals.accuracy());
  }
}

class NoBatches final : public data::Dataset {
 public:
  GlobalBatch batch(std::int64_t) const override { return {}; }
  std::int64_t batches() const override { return 0; }
  void fill(std::int64_t, std::int64_t, std::int64_t, const BatchFields&) const override {
    FAIL() << "there is nothing";
  }
};

// Pairs that are compared stay together in a pass.
TEST(Evaluation, OfComparedPairsNeedsWholeGroups) {
  config::Config c;
  inference::LoadedModel model = loaded_fixture("sentence_bert", c);
  ASSERT_EQ(model.model ? c.model.heads.at(0).type : "", "embed");
  const auto evaluate = [&](std::int64_t pairs, std::int64_t group) {
    c.train.global_batch_size = c.train.micro_batch_size = pairs * 2;
    c.model.heads[0].group = group;
    model.model = models::make_model(c, comm::single_mesh());
    return inference::evaluate(model, c, NoBatches()).labels[0];
  };
  for (const std::int64_t group : {0, 1, 2, 4}) EXPECT_EQ(evaluate(4, group), 0) << group;
  for (const auto& [pairs, group] : {std::pair{4, 3}, {4, 5}, {6, 4}})
    test::expect_error(ExitCode::usage, {"train.global_batch_size", "compared by all 1 ranks"},
                       [&] { evaluate(pairs, group); });
}

inference::Prediction predicted(std::int32_t label, std::vector<double> scores,
                                std::int64_t text = 0) {
  return {.text = text, .label = label, .scores = std::move(scores)};
}

using Scores = std::vector<std::pair<std::string, double>>;

void expect_scores(const config::HeadConfig& head, const std::vector<inference::Prediction>& all,
                   const Scores& expected) {
  const Scores found = inference::scores_of(head, all);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].first, expected[i].first);
    EXPECT_NEAR(found[i].second, expected[i].second, 1e-12) << found[i].first;
  }
}

TEST(PredictionScores, OfTwoClassesAreThoseOfClassOne) {
  // Truth 0 0 0 1 1, predicted 0 0 1 1 0: of class 1 one right, one too many and one missed.
  std::vector<inference::Prediction> all{predicted(0, {2, 1}), predicted(0, {0, 0}),
                                         predicted(0, {1, 2}), predicted(1, {-1, 3}),
                                         predicted(1, {5, 4})};
  expect_scores({.type = "classify", .classes = 2, .labels = {}}, all,
                {{"accuracy", 3.0 / 5}, {"f1", 1.0 / 2}, {"mcc", 1.0 / 6}});
  expect_scores({.type = "tag", .classes = 2, .labels = {}}, all,
                {{"accuracy", 3.0 / 5}, {"f1", 1.0 / 2}});
  // Of three classes the mean of 4/6, 1/2 and, which one prediction has, 0.
  for (inference::Prediction& p : all)
    p.scores.push_back(p.label == 1 && p.scores[0] == 5 ? 9 : -9);
  expect_scores({.type = "tag", .classes = 3, .labels = {}}, all,
                {{"accuracy", 3.0 / 5}, {"f1", (4.0 / 5 + 1.0 / 2 + 0) / 3}});
}

// One entity of two is found whole; texts end entities.
TEST(PredictionScores, OfTagsNamedAsEntitiesAreTheirs) {
  const config::HeadConfig head{.type = "tag", .classes = 3, .labels = {"O", "B-X", "I-X"}};
  const auto word = [](std::int64_t text, std::int32_t truth, std::size_t found) {
    std::vector<double> scores(3);
    scores[found] = 1;
    return predicted(truth, scores, text);
  };
  // Truth: [B I] O | [I]; found: [B I] O | O.
  expect_scores(head, {word(0, 1, 1), word(0, 2, 2), word(0, 0, 0), word(1, 2, 0)},
                {{"accuracy", 3.0 / 4}, {"f1", 2.0 / 3}});
  // Truth: [B] | [I], two entities; found: the same. In one text they would be one.
  expect_scores(head, {word(0, 1, 1), word(1, 2, 2)}, {{"accuracy", 1}, {"f1", 1}});
  expect_scores(head, {word(0, 1, 1), word(1, 2, 0)}, {{"accuracy", 0.5}, {"f1", 2.0 / 3}});
  expect_scores({.type = "tag", .classes = 2, .labels = {"O", "X"}}, {word(0, 1, 1), word(0, 0, 1)},
                {{"accuracy", 0.5}, {"f1", 2.0 / 3}});
}

TEST(PredictionScores, OfNumbersAreCorrelations) {
  const auto number = [](float truth, double found) {
    return predicted(std::bit_cast<std::int32_t>(truth), {found});
  };
  // Deviations -1.5 -0.5 0.5 1.5 and -2 -1 -3 6 from the means: 3 + 0.5 - 1.5 + 9 = 11.
  expect_scores({.type = "regress", .labels = {}},
                {number(1, 1), number(2, 2), number(3, 0), number(4, 9)},
                {{"pearson", 11 / std::sqrt(5.0 * 50)}, {"spearman", 0.4}});
  EXPECT_TRUE(inference::scores_of({.type = "regress", .labels = {}}, {}).empty());
}

TEST(Totals, AreWeightedMeansOfTermsThatHaveLabels) {
  inference::Totals a, b;
  a.loss = {6, 100}, a.labels = {3, 0}, a.correct = {1, 0}, a.weights = {1, 9};
  EXPECT_EQ(a.mean(), 2) << "a term without labels counts nothing";
  EXPECT_EQ(a.mean(0), 2);
  EXPECT_DOUBLE_EQ(a.perplexity(), std::exp(2.0));
  b.loss = {4, 8}, b.labels = {1, 16}, b.correct = {1, 4}, b.weights = {1, 0.5};
  b += a;
  a.loss = {4, 8}, a.labels = {1, 16}, a.correct = {1, 4}, a.weights = {1, 0.5};
  EXPECT_DOUBLE_EQ(a.mean(), 4 + 0.5 * 0.5);
  EXPECT_DOUBLE_EQ(a.accuracy(1), 0.25);
  EXPECT_DOUBLE_EQ(b.mean(0), 10.0 / 4);
  EXPECT_DOUBLE_EQ(b.mean(1), 108.0 / 16);
  EXPECT_DOUBLE_EQ(b.accuracy(), 2.0 / 4);
  EXPECT_DOUBLE_EQ(b.perplexity(), std::exp(2.5)) << "of the first term";
  EXPECT_EQ(inference::Totals{}.mean(), 0);
  EXPECT_EQ(inference::Totals{}.accuracy(), 0);
}

TEST(Totals, CountLabelsOfSomeSequences) {
  nn::Recording r({.sequences = 4, .length = 3}, DType::f32);
  const graph::Value there = r.tape->input("x", {1}, DType::f64);
  r.losses = {{.name = "a", .weight = 2, .value = there, .labels = Field::labels},
              {.name = "b", .weight = 0.25, .value = there, .per_sequence = 5, .per_batch = 7},
              {.name = "elsewhere", .weight = 4, .labels = Field::labels}};
  Ids labels{1, -1, 0, -1, -1, -1, 4, 5, 6, -1, 8, 9};
  const BatchFields fields{{Field::labels, labels}};
  const auto counted = [&](std::int64_t sequences, std::int64_t first) {
    const inference::Totals t = inference::count_labels(r, fields, sequences, first);
    EXPECT_EQ(t.weights[0], 2);
    EXPECT_EQ(t.weights[1], 0.25);
    EXPECT_EQ(t.weights[2], 4);
    EXPECT_EQ(t.labels[2], 0) << "another stage counts it";
    return std::pair(t.labels[0], t.labels[1]);
  };
  EXPECT_EQ(counted(4, 0), std::pair(std::int64_t{7}, std::int64_t{27}));
  EXPECT_EQ(counted(2, 0), std::pair(std::int64_t{2}, std::int64_t{17}));
  EXPECT_EQ(counted(2, 2), std::pair(std::int64_t{5}, std::int64_t{17}));
  EXPECT_EQ(counted(1, 1), std::pair(std::int64_t{0}, std::int64_t{12}));
}

TEST(RetrievalScores, AreSharesAndMeanReciprocalRanks) {
  const Scores scores = inference::retrieval_scores(std::vector<std::int64_t>{0, 1, 9, 10});
  const Scores expected{{"recall_at_1", 0.25},
                        {"recall_at_10", 0.75},
                        {"mrr", (1 + 1.0 / 2 + 1.0 / 10 + 1.0 / 11) / 4}};
  ASSERT_EQ(scores.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(scores[i].first, expected[i].first);
    EXPECT_DOUBLE_EQ(scores[i].second, expected[i].second);
  }
}

TEST(RetrievalScores, CountNearerDocumentsOfManyQueries) {
  constexpr std::int64_t n = 131, width = 3;
  std::mt19937 random(5);
  std::vector<float> queries, documents;
  for (std::int64_t i = 0; i < n * width; ++i) {  // whole numbers: many products are equal
    queries.push_back(static_cast<float>(random() % 5) - 2);
    documents.push_back(static_cast<float>(random() % 5) - 2);
  }
  std::vector<std::int64_t> expected;
  for (std::int64_t q = 0; q < n; ++q) {
    const auto product = [&](std::int64_t d) {
      float sum = 0;
      for (std::int64_t i = 0; i < width; ++i)
        sum += queries[static_cast<std::size_t>(q * width + i)] *
               documents[static_cast<std::size_t>(d * width + i)];
      return sum;
    };
    std::int64_t nearer = 0;
    for (std::int64_t d = 0; d < n; ++d)
      nearer += product(d) > product(q) || (d < q && product(d) == product(q));
    expected.push_back(nearer);
  }
  EXPECT_EQ(inference::nearer_documents(queries, documents, width, 1), expected);
}

// A model of equal logits: the first id that may be is taken until the limit.
class FirstIds : public testing::Test {
 protected:
  explicit FirstIds(std::int64_t length = 520) {
    config_ = config::parse_config(
        "model: {family: encoder_decoder, vocab_size: 300, d_model: 4, n_layers: 1, n_heads: 1, "
        "d_ff: 4, max_seq_len: " +
            std::to_string(length) +
            "}\ntrain: {seq_len: 8, global_batch_size: 1}\n"
            "data: {train: {type: pairs, source: a, target: b}, tokenizer: bytes}\n",
        "test", {});
    config::resolve_for_ranks(config_, 1);
    model_ = models::make_model(config_, comm::single_mesh());
    zeros_.resize(static_cast<std::size_t>(model_->parameters().flat_elements()));
  }
  inference::Translator translator(const inference::TranslatorOptions& options) const {
    return {*model_, config_.model, site_, {model_->parameters(), zeros_.data()}, *bytes_, options};
  }
  std::vector<std::string> translate(const std::vector<std::string>& lines,
                                     const inference::TranslatorOptions& options) const {
    return translator(options).translate(lines);
  }
  const comm::RankContext site_ = one_rank();
  const std::unique_ptr<tokenizer::Tokenizer> bytes_ = tokenizer::load_tokenizer("bytes");
  config::Config config_;
  std::unique_ptr<nn::Model> model_;
  mutable std::vector<float> zeros_;
};

// At most 32 sentences, 128 beams and 4096 source tokens, with lengths rounded up to 8, from 65 on
// to 32; the longest lines come first.
TEST_F(FirstIds, BatchesOfLinesHaveTheirLimits) {
  const auto batches = [&](std::int64_t beams, std::size_t lines, std::size_t length) {
    std::vector<std::int64_t> sizes;
    std::int64_t before = 0;
    watch_tasks([&](const TaskState& t) {
      EXPECT_EQ(t.what, "translating");
      EXPECT_EQ(t.total, static_cast<std::int64_t>(lines));
      if (t.done > before) sizes.push_back(t.done - before);
      before = t.done;
    });
    translate(std::vector<std::string>(lines, std::string(length, 'a')),
              {.beams = beams, .max_tokens = 1});
    watch_tasks({});
    return sizes;
  };
  using Sizes = std::vector<std::int64_t>;
  EXPECT_EQ(batches(1, 33, 3), (Sizes{32, 1}));
  EXPECT_EQ(batches(4, 33, 3), (Sizes{32, 1}));
  EXPECT_EQ(batches(5, 26, 3), (Sizes{25, 1}));
  EXPECT_EQ(batches(9, 15, 3), (Sizes{14, 1}));
  EXPECT_EQ(batches(1, 33, 127), (Sizes{32, 1}));
  EXPECT_EQ(batches(1, 26, 128), (Sizes{25, 1})) << "129 tokens count as 160";
  EXPECT_EQ(batches(1, 9, 511), (Sizes{8, 1}));
}

TEST_F(FirstIds, LengthsFollowTheSourceUnlessGiven) {
  const auto lengths = [&](std::int64_t most) {
    std::vector<std::size_t> all;
    for (const std::string& line :
         translate({"ab", "", std::string(40, 'c')}, {.max_tokens = most}))
      all.push_back(line.size());
    return all;
  };
  EXPECT_EQ(lengths(0), (std::vector<std::size_t>{2 * 3 + 50, 0, 2 * 41 + 50}));
  EXPECT_EQ(lengths(7), (std::vector<std::size_t>{7, 0, 7}));
}

TEST_F(FirstIds, LinesAreCutToTheModelsLength) {
  inference::Translator t = translator({.max_tokens = 1});
  t.translate({std::string(519, 'a'), "b"});
  EXPECT_EQ(t.cut(), 0) << "with the end as long as the model reads";
  t.translate({std::string(520, 'a'), std::string(600, 'a'), "b"});
  EXPECT_EQ(t.cut(), 2);
}

TEST_F(FirstIds, LineBreaksBecomeSpacesAndSpecialTokensNothing) {
  const auto from = [&](std::int32_t first) {
    Ids banned;
    for (std::int32_t id = 0; id < first; ++id) banned.push_back(id);
    return translate({"a"}, {.format = {.banned_ids = banned}, .max_tokens = 2})[0];
  };
  EXPECT_EQ(from('\t'), "\t\t");
  EXPECT_EQ(from('\n'), "  ");
  EXPECT_EQ(from('\r'), "  ");
  EXPECT_EQ(from('x'), "xx");
  EXPECT_EQ(from(tokenizer::ByteSpecials::begin), "");
  EXPECT_EQ(from(tokenizer::ByteSpecials::end), "");
  EXPECT_EQ(from(tokenizer::ByteSpecials::mask), "");
}

TEST_F(FirstIds, EndsOfTheFormatEndATranslation) {
  EXPECT_EQ(translate({"a"}, {.format = {.end_ids = {0}}, .max_tokens = 4})[0], "");
  EXPECT_EQ(translate({"a"}, {.format = {.end_ids = {1}}, .max_tokens = 4})[0],
            std::string(4, '\0'));
}

// Generation settings start a translation where the model starts as they were written for.
TEST_F(FirstIds, StartIsThatOfTheFormatWhereItIsOfTheModel) {
  const std::int64_t own = config_.model.decoder_start;
  EXPECT_THROW(translator({.format = {.start_id = 300, .model_start = own}}), Error);
  EXPECT_NO_THROW(translator({.format = {.start_id = 299, .model_start = own}}));
  EXPECT_NO_THROW(translator({.format = {.start_id = 300, .model_start = own + 1}}));
  config_.model.decoder_start = 300;
  EXPECT_THROW(translator({}), Error);
  EXPECT_THROW(translator({.format = {.start_id = 3, .model_start = 4}}), Error);
  EXPECT_NO_THROW(translator({.format = {.start_id = 0, .model_start = 300}}));
}

TEST_F(FirstIds, ThatAreStoppedGiveNothing) {
  int asked = 0;
  std::vector<std::string> lines(70, "ab");
  inference::Translator t = translator({.max_tokens = 1});
  EXPECT_TRUE(t.translate(lines, [&] { return ++asked < 2; }).empty());
  EXPECT_EQ(asked, 2) << "after each batch";
  EXPECT_EQ(t.translate(lines, [&] { return ++asked > 0; }).size(), 70u);
  EXPECT_EQ(asked, 5);
}

TEST(TranslationOptions, OfTheValidationDataAreThoseOfEval) {
  config::Config c;
  c.eval.beam = 5, c.eval.length_penalty = 0.25;
  const inference::TranslatorOptions o = inference::translation_of(c);
  EXPECT_EQ(o.beams, 5);
  EXPECT_EQ(o.length_penalty, 0.25);
  EXPECT_EQ(o.max_tokens, 0);
}

}  // namespace
}  // namespace tfm
