#include <gtest/gtest.h>

#include "core/address.h"
#include "core/strings.h"

namespace tfm {
namespace {

TEST(Strings, NearestTakesItsLimitForAllLengths) {
  EXPECT_EQ(nearest("tokenize", {"tokenize-all"}, 3), "");
  EXPECT_EQ(nearest("tokeni", {"tokenizer", "token-list"}, 3), "tokenizer");
  EXPECT_EQ(nearest("tokeni", {"tokenizer"}), "");
  EXPECT_EQ(nearest("tokenize", {"tokenizer"}, 1), "tokenizer");
  EXPECT_EQ(nearest("tokeniz", {"tokenizer"}, 1), "");
  EXPECT_EQ(nearest("lora", {"loss"}), "") << "half of the letters differ";
  EXPECT_EQ(nearest("los", {"loss"}), "loss");
}

TEST(Strings, CountedTakesTheSingularForOneAlone) {
  EXPECT_EQ(counted(0, "rank") + ", " + counted(1u, "node") + ", " + counted(2l, "core"),
            "0 ranks, 1 node, 2 cores");
}

TEST(Strings, WordsForAShellAreQuotedWhereTheyNeedIt) {
  EXPECT_EQ(shell_quoted("/a/b_c-1.txt"), "/a/b_c-1.txt");
  EXPECT_EQ(shell_quoted(""), "''");
  EXPECT_EQ(shell_quoted("-x"), "'-x'");
  EXPECT_EQ(shell_quoted("it's $1"), "'it'\\''s $1'");
}

TEST(Address, HasAHostAndAPort) {
  const auto text = [](std::string_view from) {
    const auto a = address_of(from);
    return a ? a->host + " " + std::to_string(a->port) : "";
  };
  EXPECT_EQ(text("localhost:0"), "localhost 0");
  EXPECT_EQ(text("127.0.0.1:65535"), "127.0.0.1 65535");
  EXPECT_EQ(text("[::1]:9750"), "::1 9750");
  for (const char* bad : {"", ":", "9750", ":9750", "[]:80", "localhost", "localhost:",
                          "localhost:x", "localhost:-1", "localhost:65536", "localhost:123456"})
    EXPECT_EQ(text(bad), "") << bad;
}

}  // namespace
}  // namespace tfm
