#include <gtest/gtest.h>

#include "tokenizer/wordpiece.h"

namespace tfm::tokenizer::test {
namespace {

// The limit counts code points, not bytes: a word of that many is still split.
TEST(WordPiece, SplitsWordsUpToTheLimitAndGivesUnknownBeyond) {
  const WordPieceModel model(
      {{"[UNK]", 0}, {"a", 1}, {"##a", 2}, {"\u00E9", 3}, {"##\u00E9", 4}, {"##aa", 5}}, "##", 0,
      3);
  const auto ids = [&](std::string_view word) {
    std::vector<std::int32_t> all{9};
    model.encode(word, all);
    return all;
  };
  EXPECT_EQ(ids(""), (std::vector<std::int32_t>{9}));
  EXPECT_EQ(ids("aaa"), (std::vector<std::int32_t>{9, 1, 5}));
  EXPECT_EQ(ids("aaaa"), (std::vector<std::int32_t>{9, 0}));
  EXPECT_EQ(ids("\u00E9\u00E9\u00E9"), (std::vector<std::int32_t>{9, 3, 4, 4}));
  EXPECT_EQ(ids("\u00E9\u00E9\u00E9\u00E9"), (std::vector<std::int32_t>{9, 0}));
  EXPECT_EQ(ids("\u00E9ab"), (std::vector<std::int32_t>{9, 0}));  // no token fits its last part
}

}  // namespace
}  // namespace tfm::tokenizer::test
