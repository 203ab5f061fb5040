// BLEU and chrF against sacrebleu's numbers.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "text/translation_scores.h"

using namespace tfm;

TEST(TranslationScores, AgreeWithSacrebleu) {
  std::ifstream file(TFM_SOURCE_DIR "/tests/fixtures/translation/scores.jsonl");
  int groups = 0;
  for (std::string line; std::getline(file, line); ++groups) {
    const auto group = nlohmann::json::parse(line);
    const auto hypotheses = group["hypotheses"].get<std::vector<std::string>>(),
               references = group["references"].get<std::vector<std::string>>();
    EXPECT_NEAR(text::corpus_bleu(hypotheses, references), group["bleu"].get<double>(), 1e-6)
        << group["name"];
    EXPECT_NEAR(text::corpus_chrf(hypotheses, references), group["chrf"].get<double>(), 1e-6)
        << group["name"];
  }
  EXPECT_GE(groups, 50);
}

TEST(TranslationScores, InvalidBytesAreCharacters) {
  const std::vector<std::string> hypothesis{"a \xff\xc3 b c d"};
  EXPECT_NEAR(text::corpus_bleu(hypothesis, hypothesis), 100, 1e-9);
  EXPECT_NEAR(text::corpus_chrf(hypothesis, hypothesis), 100, 1e-9);
}
