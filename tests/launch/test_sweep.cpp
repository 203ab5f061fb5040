// The runs of a sweep: values, names, folders, and what the exit codes of an earlier start decide.
#include <gtest/gtest.h>

#include <filesystem>

#include "config/config.h"
#include "launch/support/program.h"
#include "launch/sweep/sweep.h"
#include "support/data_files.h"

namespace tfm::launch {
namespace {

TEST(Sweep, CommasInBracketsAndQuotesSeparateNoValues) {
  for (const char* swept : {"a.b=1,2", "a.b=[1,2],[3]", "a.b=x,", "a.b='1,2',3", "a={b: 1},{b: 2}"})
    EXPECT_TRUE(is_swept(swept)) << swept;
  for (const char* single : {"a.b=1", "a.b=[1,2]", "a.b={c: 1, d: 2}", "a.b='1,2'", "a.b=\"1,2\"",
                             "a,b.c", "a.b=", "a.b=[[1],[2]]", "a.b=\"it's,\""})
    EXPECT_FALSE(is_swept(single)) << single;
}

class SweepRuns : public testing::Test {
 protected:
  SweepRuns() {
    test::put(folder_ / "cfg.yaml",
              "run: {name: x}\n"
              "model: {family: decoder, vocab_size: 256, d_model: 16, n_layers: 1, n_heads: 2}\n"
              "train: {steps: 2, global_batch_size: 4, seq_len: 16}\n"
              "data: {train: {type: text, path: a.txt}}\n"
              "checkpoint: {dir: " +
                  folder_ / "runs/checkpoints" + "}\n");
  }
  // What a sweep prints; its launcher notes the configuration's file and ends with `code`.
  std::string sweep(std::vector<std::string> words, int code, ExitCode expected = ExitCode::ok) {
    const std::string script = folder_ / "launcher";
    test::put(script,
              "echo \"$2\" >> " + folder_ / "started" + "\nexit " + std::to_string(code) + "\n");
    std::filesystem::remove(folder_ / "started");
    words.insert(words.begin(), {"tfm-train", folder_ / "cfg.yaml"});
    words.insert(words.end(), {"--launcher", "sh " + script});
    std::vector<char*> argv;
    for (std::string& w : words) argv.push_back(w.data());
    const Arguments args(static_cast<int>(argv.size()), argv.data(),
                         {{"--sweep", true, true, is_swept}, {"--launcher"}}, config::meant_key);
    testing::internal::CaptureStdout();
    try {
      EXPECT_EQ(run_sweep(args), 0);
      EXPECT_EQ(expected, ExitCode::ok);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), expected) << e.what();
      why_ = e.what();
    }
    return testing::internal::GetCapturedStdout();
  }
  // The runs that were started, without what all their files have in common.
  std::vector<std::string> started() const {
    std::vector<std::string> all;
    std::ifstream lines(folder_ / "started");
    const std::string before = folder_ / "runs/sweep/", after = "/config.yaml";
    for (std::string line; std::getline(lines, line);) {
      EXPECT_TRUE(line.starts_with(before) && line.ends_with(after)) << line;
      all.push_back(line.substr(before.size(), line.size() - before.size() - after.size()));
    }
    return all;
  }
  test::TemporaryFolder folder_;
  std::string why_;
};

using Names = std::vector<std::string>;

TEST_F(SweepRuns, TheLastKeyChangesFirst) {
  const std::string said = sweep(
      {"--sweep", "optimizer.lr=1e-3,3e-4", "train.seed=1,2,3", "metrics.tensorboard=events"}, 0);
  EXPECT_EQ(started(), (Names{"lr=1e-3,seed=1", "lr=1e-3,seed=2", "lr=1e-3,seed=3",
                              "lr=3e-4,seed=1", "lr=3e-4,seed=2", "lr=3e-4,seed=3"}));
  EXPECT_NE(said.find("sweep: run 2 of 6, lr=1e-3,seed=2\n"), std::string::npos) << said;
  EXPECT_NE(said.find("sweep: 6 runs in " + folder_ / "runs/sweep" + "\n"), std::string::npos);
  EXPECT_EQ(said.find("report"), std::string::npos) << "there are no metrics";
  const std::string own = folder_ / "runs/sweep/lr=3e-4,seed=2";
  const config::Config c = load_config(own + "/config.yaml", {});
  EXPECT_EQ(c.optimizer.lr, 3e-4);
  EXPECT_EQ(c.train.seed, 2u);
  EXPECT_EQ(c.run.name, "x,lr=3e-4,seed=2");
  EXPECT_EQ(c.checkpoint.dir, own + "/checkpoints");
  EXPECT_EQ(c.metrics.jsonl, own + "/metrics.jsonl");
  EXPECT_EQ(c.metrics.tensorboard, own + "/tensorboard");
  EXPECT_EQ(test::get(own + "/exit_code"), "0\n");
}

TEST_F(SweepRuns, NamesAreOfKeysThatVary) {
  sweep({"--sweep", "optimizer.lr=1e-3", "--sweep", "train.seed=1,2"}, 0);
  EXPECT_EQ(started(), (Names{"seed=1", "seed=2"}));
  sweep({"--sweep", "optimizer.lr=1e-3", "--sweep", "train.seed=5"}, 0);
  EXPECT_EQ(started(), (Names{"lr=1e-3,seed=5"})) << "none varies";
  sweep({"--sweep", "data.train.repeat_passes=1", "--sweep", "optimizer.lr=x"}, 0, ExitCode::usage);
  EXPECT_TRUE(started().empty());
  const config::Config c = load_config(folder_ / "runs/sweep/seed=1/config.yaml", {});
  EXPECT_EQ(c.metrics.tensorboard, "") << "it was not asked for";
}

TEST_F(SweepRuns, OnlySuccessAndNaNAreNotRepeated) {
  const std::vector<std::string> words{"--sweep", "train.seed=1,2"};
  for (const int code : {1, 3, 75, 137}) {
    const std::string said = sweep(words, code, ExitCode::failed);
    EXPECT_EQ(started().size(), 2u) << code;
    EXPECT_NE(said.find("seed=2: failed with exit code " + std::to_string(code)), said.npos)
        << said;
    EXPECT_NE(why_.find("2 of 2 runs failed"), why_.npos) << why_;
    EXPECT_EQ(test::get(folder_ / "runs/sweep/seed=1/exit_code"), std::to_string(code) + "\n");
  }
  sweep(words, 5, ExitCode::failed);
  EXPECT_EQ(started().size(), 2u);
  std::string said = sweep(words, 0, ExitCode::failed);
  EXPECT_TRUE(started().empty()) << "NaN would come again";
  EXPECT_NE(said.find("run 1 of 2, seed=1: failed before with exit code 5"), said.npos) << said;
  said = sweep({"train.steps=3", "--sweep", "train.seed=1,2"}, 0);
  EXPECT_EQ(started().size(), 2u) << "another configuration";
  said = sweep({"train.steps=3", "--sweep", "train.seed=1,2"}, 1);
  EXPECT_TRUE(started().empty());
  EXPECT_NE(said.find("run 2 of 2, seed=2: done before"), said.npos) << said;
}

TEST_F(SweepRuns, WhatIsRefused) {
  const struct {
    std::vector<std::string> words;
    const char* why;
  } cases[] = {{{"--sweep", "optimizer.lr"}, "section.key=value"},
               {{"--sweep", "=1,2"}, "section.key=value"},
               {{"--sweep", "train.seed=1,"}, "a value is missing"},
               {{"--sweep", "train.seed=1,2", "--sweep", "train.seed=3,4"}, "the key comes twice"},
               {{"train.seed=3", "--sweep", "train.seed=1,2"}, "twice, also as train.seed=3"},
               {{"--sweep", "run.name=a,b"}, "its own run.name"},
               {{"--sweep", "checkpoint.dir=a,b"}, "its own checkpoint.dir"},
               {{"--sweep", "metrics.jsonl=a,b"}, "its own metrics.jsonl"},
               {{"--sweep", "train.seed=1,1"}, "two runs would have the name seed=1"}};
  for (const auto& c : cases) {
    sweep(c.words, 0, ExitCode::usage);
    EXPECT_NE(why_.find(c.why), why_.npos) << why_;
  }
  EXPECT_TRUE(started().empty());
}

}  // namespace
}  // namespace tfm::launch
