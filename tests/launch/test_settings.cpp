// What ranks must have in common, and what the message says where they have not.
#include <gtest/gtest.h>

#include "config/config.h"
#include "launch/support/settings.h"

namespace tfm::launch {
namespace {

RankSettings settings(const std::vector<std::string>& overrides = {}) {
  return {"alpha", "0.1.0 (build 1a2b)", "AVX-512, products by AMX",
          config::dump_config(config::parse_config("model: {family: decoder, preset: gpt2-124m}\n"
                                                   "data: {train: {type: tokens, path: a.bin}}\n",
                                                   "test", overrides))};
}

std::string message(const RankSettings& other, ExitCode code) {
  const RankSettings first = settings();
  EXPECT_FALSE(first_difference({first, first, first}));
  const auto error = first_difference({first, first, other});
  if (!error) return "no difference";
  EXPECT_EQ(error->code(), code) << error->what();
  return error->what();
}

TEST(Settings, TheFirstKeyThatDiffersIsNamedWithBothValuesAndHosts) {
  const struct {
    const char *override, *key, *mine, *theirs;
  } cases[] = {{"optimizer.lr=0.25", "optimizer.lr", "6e-04", "0.25"},
               {"train.seed=7", "train.seed", "1234", "7"},
               {"data.train.path=b.bin", "data.train.path", "a.bin", "b.bin"},
               {"model.dropout=0.25", "model.dropout", "0", "0.25"},
               {"checkpoint.dir=elsewhere", "checkpoint.dir", "", "elsewhere"}};
  for (const auto& c : cases) {
    RankSettings other = settings({c.override});
    other.host = "beta";
    const std::string text = message(other, ExitCode::usage);
    for (const std::string& part :
         {std::string(c.key), std::string(c.mine), std::string(c.theirs),
          std::string("rank 0 on host alpha"), std::string("rank 2 on host beta")})
      EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

TEST(Settings, AKeyOfOneRankAloneIsNamed) {
  const RankSettings first{"alpha", "1", "",
                           "a: 1\neval:\n  every: 5\n  stop:\n    patience: 3\nz: 1\n"},
      other{"beta", "1", "", "a: 1\neval:\n  every: 5\nz: 1\n"};
  for (const bool swapped : {false, true}) {
    const auto error = first_difference({swapped ? other : first, swapped ? first : other});
    ASSERT_TRUE(error);
    const std::string text = error->what(), values = swapped ? "not set on rank 0" : "3 on rank 0";
    EXPECT_NE(text.find("eval.stop.patience is " + values), std::string::npos) << text;
  }
}

TEST(Settings, AnotherBuildIsNamedBeforeAnotherConfiguration) {
  RankSettings other = settings({"optimizer.lr=0.25"});
  other.host = "beta", other.build = "0.1.0 (build 3c4d)";
  const std::string text = message(other, ExitCode::environment);
  for (const char* part : {"1a2b", "3c4d", "alpha", "beta", "rank 2"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  EXPECT_EQ(text.find("optimizer.lr"), std::string::npos);
}

TEST(Settings, OtherInstructionsAreNamedBeforeAnotherBuild) {
  RankSettings other = settings();
  other.host = "beta", other.instructions = "AVX2", other.build = "0.1.0 (build 3c4d)";
  const std::string text = message(other, ExitCode::environment);
  for (const char* part : {"rank 2 on host beta computes by AVX2", "AVX-512, products by AMX",
                           "GLIBC_TUNABLES=", "ONEDNN_MAX_CPU_ISA="})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(Settings, TheProgramKnowsItsBuild) {
  EXPECT_NE(build_id().find("(build "), std::string::npos) << build_id();
  EXPECT_NE(build_id().find("(kernels "), std::string::npos) << build_id();
  EXPECT_EQ(build_id(false).find("kernels"), std::string::npos);
}

}  // namespace
}  // namespace tfm::launch
