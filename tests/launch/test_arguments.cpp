// The command line: options, keys in all the forms that users try, and what a wrong one is told.
#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/checkpoint.h"
#include "config/config.h"
#include "core/error.h"
#include "launch/support/arguments.h"
#include "launch/support/program.h"
#include "launch/sweep/sweep.h"
#include "support/data_files.h"
#include "tokenizer/tokenizer.h"

namespace tfm::launch {
namespace {

Arguments read(std::vector<std::string> words, MeantKey meant_key = config::meant_key) {
  words.insert(words.begin(), "tfm-test");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return {
      static_cast<int>(argv.size()),
      argv.data(),
      {{"--check", false}, {"--ranks"}, {"--input", true, true}, {"--sweep", true, true, is_swept}},
      meant_key};
}

std::string refusal(const std::vector<std::string>& words, MeantKey meant_key = config::meant_key) {
  try {
    static_cast<void>(read(words, meant_key).only("configuration file"));
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::usage);
    return e.what();
  }
  return "accepted";
}

TEST(Arguments, KeysMayHaveDashes) {
  const Arguments a = read({"cfg.yaml", "--optimizer.lr=1e-3", "model.bias=false", "--check"});
  EXPECT_EQ(a.overrides(), (std::vector<std::string>{"optimizer.lr=1e-3", "model.bias=false"}));
  EXPECT_EQ(a.only("configuration file"), "cfg.yaml");
  EXPECT_TRUE(a.has("--check"));
  EXPECT_NE(refusal({"x", "--optimizer.lr=1e-3"}, nullptr).find("unknown option"),
            std::string::npos);
}

TEST(Arguments, SayWhatAWrongOneProbablyMeans) {
  const auto says = [](const std::vector<std::string>& words, const std::string& text) {
    const std::string refused = refusal(words);
    EXPECT_NE(refused.find(text), std::string::npos) << refused;
  };
  says({"cfg.yaml", "optimizer.lr", "1e-3"}, "optimizer.lr=1e-3");
  says({"cfg.yaml", "optimizer.learning_rate", "1e-3"}, "optimizer.lr=1e-3");
  says({"cfg.yaml", "precision", "bf16"}, "precision=bf16");
  says({"optimizer.lr", "1e-3"}, "optimizer.lr=1e-3");
  says({"cfg.yaml", "--optimizer.lr", "1e-3"}, "did you mean optimizer.lr=1e-3?");
  says({"cfg.yaml", "--learning-rate", "1e-3"}, "did you mean optimizer.lr=1e-3?");
  says({"cfg.yaml", "--lr=1e-3"}, "did you mean optimizer.lr=1e-3?");
  says({"cfg.yaml", "--precision=bf16"}, "did you mean precision=bf16?");
  says({"cfg.yaml", "--batch-size", "8"}, "did you mean train.global_batch_size=8?");
  says({"cfg.yaml", "--learning-rate"}, "did you mean optimizer.lr=VALUE?");
  says({"cfg.yaml", "--chek"}, "did you mean '--check'?");
  says({"--config", "cfg.yaml"}, "without an option: cfg.yaml");
  says({"--config=cfg.yml"}, "without an option: cfg.yml");
  says({"-c", "cfg.yaml"}, "without an option: cfg.yaml");
  says({"cfg.yaml", "-x"}, "unknown option '-x'; see --help");
  says({"cfg.yaml", "--"}, "unknown option '--'");
  says({"cfg.yaml", "--frobnicate"}, "unknown option '--frobnicate'; see --help");
  says({"a.yaml", "b.yaml"}, "got 2 ('b.yaml'); see --help");
}

TEST(Arguments, ValuesAreNotOptions) {
  const Arguments a = read({"--input", "a", "-", "-x", "--ranks", "-3"});
  EXPECT_EQ(a.all("--input"), (std::vector<std::string>{"a", "-", "-x"}));
  EXPECT_EQ(a.get("--ranks"), "-3");
  const Arguments keys = read({"--input", "a", "train.steps=3", "b=c"});
  EXPECT_EQ(keys.all("--input"), (std::vector<std::string>{"a", "b=c"}));
  EXPECT_EQ(keys.overrides(), std::vector<std::string>{"train.steps=3"});
  EXPECT_EQ(read({"-"}).positional(), std::vector<std::string>{"-"});
}

TEST(Arguments, TheFirstMayBeAFileWithAnEqualsSign) {
  const test::TemporaryFolder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.str());
  test::put("lr=1.yaml", "");
  const Arguments a = read({"lr=1.yaml", "lr=1.yaml", "train.steps=2"}), b = read({"lr=2.yaml"});
  std::filesystem::current_path(before);
  EXPECT_EQ(a.positional(), std::vector<std::string>{"lr=1.yaml"});
  EXPECT_EQ(a.overrides(), (std::vector<std::string>{"lr=1.yaml", "train.steps=2"}));
  EXPECT_EQ(b.overrides(), std::vector<std::string>{"lr=2.yaml"}) << "no such file";
}

// A tokenizer that is not the checkpoint's is taken where the command line names it.
TEST(Arguments, NameAnotherTokenizerOrItIsRefused) {
  const test::TemporaryFolder folder;
  checkpoint::CheckpointInfo info;
  info.step = 1, info.tokenizer = "another";
  info.config =
      "model: {family: decoder, vocab_size: 8, d_model: 8, n_layers: 1, n_heads: 2}\n"
      "data: {train: {type: tokens, path: a.bin}}\n";
  const std::string dir = checkpoint::write_checkpoint(folder.str(), info, {}, 0, {}).path;
  const auto bytes = tokenizer::load_tokenizer("bytes");
  const auto said = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "cfg.yaml");
    testing::internal::CaptureStderr();
    std::string refused;
    try {
      check_tokenizer(read(words), dir, *bytes, {});
    } catch (const Error& e) {
      refused = std::string("refused: ") + e.what();
    }
    return refused + testing::internal::GetCapturedStderr();
  };
  for (const std::string name : {"data.tokenizer=bytes", "data.source_tokenizer=bytes"})
    EXPECT_TRUE(said({name}).starts_with("warning: bytes is not the tokenizer that ")) << name;
  EXPECT_TRUE(said({}).starts_with("refused: bytes is not the tokenizer that "));
  EXPECT_TRUE(said({"data.train.path=bytes"}).starts_with("refused: "));
}

TEST(Arguments, OnlySeveralValuesAreSwept) {
  const Arguments a = read({"--sweep", "optimizer.lr=1", "train.steps=100", "train.seed=1,2",
                            "model.layers=[a,b]", "--check", "--data.add_begin=on"});
  EXPECT_EQ(a.all("--sweep"), (std::vector<std::string>{"optimizer.lr=1", "train.seed=1,2"}));
  EXPECT_TRUE(a.has("--check"));
  const Arguments behind = read({"--sweep", "train.seed=1,2", "a,b.yaml", "precision=bf16"});
  EXPECT_EQ(behind.only("configuration file"), "a,b.yaml");
  EXPECT_EQ(behind.overrides(), std::vector<std::string>{"precision=bf16"});
  EXPECT_EQ(a.overrides(), (std::vector<std::string>{"train.steps=100", "model.layers=[a,b]",
                                                     "data.add_begin=on"}));
  EXPECT_NE(refusal({"--sweep", "train.seed=1,2", "c.yaml", "-x"}).find("unknown option '-x'"),
            std::string::npos);
}

}  // namespace
}  // namespace tfm::launch
