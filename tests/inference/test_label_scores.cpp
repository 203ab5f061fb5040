// Scores of labels against scikit-learn, scipy and seqeval.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "inference/embeddings.h"
#include "inference/label_scores.h"
#include "io/json.h"

namespace tfm {
namespace {

const nlohmann::json& fixture() {
  static const nlohmann::json all = io::read_json_file(
      std::string(TFM_SOURCE_DIR) + "/tests/fixtures/label_scores.json", 1 << 22);
  return all;
}

// Null stands for no value.
void expect_equal(double found, const nlohmann::json& expected, const std::string& what) {
  if (expected.is_null())
    EXPECT_TRUE(std::isnan(found)) << what << ": " << found;
  else
    EXPECT_NEAR(found, expected.get<double>(), 1e-12) << what;
}

TEST(LabelScores, OfClassesAreScikitLearns) {
  for (const auto& c : fixture().at("classes")) {
    const auto truth = c.at("truth").get<std::vector<std::int32_t>>(),
               predicted = c.at("predicted").get<std::vector<std::int32_t>>();
    expect_equal(inference::accuracy(truth, predicted), c.at("accuracy"), "accuracy");
    expect_equal(inference::f1_macro(truth, predicted), c.at("f1_macro"), "macro F1");
    expect_equal(inference::f1_of_class(truth, predicted), c.at("f1_of_1"), "F1 of 1");
    expect_equal(inference::matthews(truth, predicted), c.at("matthews"), "Matthews");
  }
  EXPECT_TRUE(std::isnan(inference::accuracy({}, {})) && std::isnan(inference::f1_macro({}, {})));
  EXPECT_EQ(inference::matthews({}, {}), 0);
}

TEST(LabelScores, OfNumbersAreScipys) {
  for (const auto& c : fixture().at("numbers")) {
    const auto x = c.at("x").get<std::vector<double>>(), y = c.at("y").get<std::vector<double>>();
    expect_equal(inference::pearson(x, y), c.at("pearson"), "Pearson");
    expect_equal(inference::spearman(x, y), c.at("spearman"), "Spearman");
  }
  EXPECT_TRUE(std::isnan(inference::pearson({}, {})));
}

TEST(LabelScores, OfEntitiesAreSeqevals) {
  const auto names = fixture().at("names").get<std::vector<std::string>>();
  EXPECT_TRUE(inference::names_entities(names));
  for (const std::vector<std::string>& others :
       {std::vector<std::string>{"O"}, {"O", "PER"}, {"O", "B-PER", "X-PER"}, {"O", "B-"}})
    EXPECT_FALSE(inference::names_entities(others));
  for (const auto& c : fixture().at("entities")) {
    std::vector<std::int32_t> truth, predicted;
    std::vector<std::size_t> begins;
    for (const auto& text : c.at("truth")) {
      begins.push_back(truth.size());
      truth.insert(truth.end(), text.begin(), text.end());
    }
    for (const auto& text : c.at("predicted"))
      predicted.insert(predicted.end(), text.begin(), text.end());
    expect_equal(inference::f1_of_entities(truth, predicted, names, begins), c.at("f1"), "F1");
  }
}

TEST(RetrievalScores, EqualVectorsTellNoDocumentApart) {
  const std::vector<float> alike(8, 0.5F);
  EXPECT_EQ(inference::nearer_documents(alike, alike, 2, 1),
            (std::vector<std::int64_t>{0, 1, 2, 3}));
  const std::vector<float> queries{1, 0, 0, 1}, documents{1, 0.5F, 0.5F, 1};
  EXPECT_EQ(inference::nearer_documents(queries, documents, 2, 1),
            (std::vector<std::int64_t>{0, 0}));
  EXPECT_EQ(inference::nearer_documents(documents, queries, 2, 1),
            (std::vector<std::int64_t>{0, 0}));
  const std::vector<float> crossed{0, 1, 1, 0};
  EXPECT_EQ(inference::nearer_documents(queries, crossed, 2, 1), (std::vector<std::int64_t>{1, 1}));
}

}  // namespace
}  // namespace tfm
