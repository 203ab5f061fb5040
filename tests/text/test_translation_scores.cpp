// BLEU and chrF against sacrebleu's numbers.
#include <gtest/gtest.h>

#include <cmath>
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

// By hand, from the definitions of BLEU and of chrF of six orders and beta 2.
TEST(TranslationScores, OfOneLineAreWhatTheirFormulasGive) {
  const auto bleu = [](const std::string& hypothesis, const std::string& reference) {
    return text::corpus_bleu(std::vector{hypothesis}, std::vector{reference});
  };
  const auto chrf = [](const std::string& hypothesis, const std::string& reference) {
    return text::corpus_chrf(std::vector{hypothesis}, std::vector{reference});
  };
  EXPECT_NEAR(bleu("a b c d", "a b c d e f g h"), 100 * std::exp(1 - 8.0 / 4), 1e-9);
  EXPECT_NEAR(bleu("a b c d e f g h", "a b c d"),
              100 * std::pow(4.0 / 8 * 3 / 7 * 2 / 6 * 1 / 5, 0.25), 1e-9);
  // The first order without a match counts as half a match, the next one as a quarter.
  EXPECT_NEAR(bleu("a b c x", "a b c d"), 100 * std::pow(3.0 / 4 * 2 / 3 * 1 / 2 * 0.5, 0.25),
              1e-9);
  EXPECT_NEAR(bleu("a b y x", "a b c d"), 100 * std::pow(2.0 / 4 * 1 / 3 * 0.5 / 2 * 0.25, 0.25),
              1e-9);
  EXPECT_EQ(bleu("a b c", "a b c"), 0);  // has no four words
  EXPECT_EQ(bleu("", "a b c d"), 0);
  EXPECT_EQ(bleu("x y z w", "a b c d"), 0);
  // Orders 1 and 2: precision 1 and 1, recall 2 / 3 and 1 / 2.
  const double recall = (2.0 / 3 + 1.0 / 2) / 2;
  EXPECT_NEAR(chrf("ab", "abc"), 100 * 5 * recall / (4 + recall), 1e-9);
  EXPECT_NEAR(chrf("abc", "ab"), 100 * 5 * recall / (4 * recall + 1), 1e-9);
  EXPECT_EQ(chrf("", "abc"), 0);
  EXPECT_EQ(chrf("xyz", "abc"), 0);
}

// The characters at which Python's str.split() cuts, and their neighbors.
TEST(TranslationScores, WordsEndAtTheSpacesOfPython) {
  for (const char* space : {"\t",     "\n",     "\v",     "\f",     "\r",     "\x1C",   "\x1D",
                            "\x1E",   "\x1F",   "\u0085", "\u00A0", "\u1680", "\u2000", "\u2005",
                            "\u200A", "\u2028", "\u2029", "\u202F", "\u205F", "\u3000"}) {
    const std::string line = std::string("a") + space + "b c d";
    EXPECT_NEAR(text::corpus_bleu(std::vector{line}, std::vector<std::string>{"a b c d"}), 100,
                1e-9)
        << testing::PrintToString(space);
    EXPECT_NEAR(text::corpus_chrf(std::vector{line}, std::vector<std::string>{"abcd"}), 100, 1e-9)
        << testing::PrintToString(space);
  }
  for (const char* other : {"\b", "\x0E", "\x1B", "\x7F", "\u0084", "\u0086", "\u009F", "\u180E",
                            "\u200B", "\u2027", "\u202A", "\u2060", "\u3001", "\uFEFF"}) {
    const std::string line = std::string("a") + other + "b c d";
    EXPECT_LT(text::corpus_bleu(std::vector{line}, std::vector<std::string>{"a b c d"}), 1)
        << testing::PrintToString(other);
    EXPECT_LT(text::corpus_chrf(std::vector{line}, std::vector<std::string>{"abcd"}), 99)
        << testing::PrintToString(other);
  }
}
