// Runs of the trainer, which launches a step before the one before it is finished, but where
// something needs what is there behind a step.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "device/cuda/stream.h"
#include "fake_runtime.h"
#include "support/data_files.h"
#include "train/engine_state.h"
#include "train/trainer.h"

namespace tfm {
namespace {

namespace fs = std::filesystem;
using emulator::runtime;

device::Device device() { return {std::make_shared<cuda::Stream>(0), 1}; }

// A run of the trainer with its metrics.
class TracedRun {
 public:
  TracedRun() {
    std::ofstream text(folder_ / "text.txt");
    for (int i = 0; i < 200; ++i) text << "line " << i * i << ",\n";
  }

  config::Config config(const std::vector<std::string>& overrides) const {
    std::vector<std::string> all{"data.train.path=" + (folder_ / "text.txt"),
                                 "data.validation.path=" + (folder_ / "text.txt"),
                                 "checkpoint.dir=" + dir(),
                                 "metrics.jsonl=" + (folder_ / "run.jsonl")};
    all.insert(all.end(), overrides.begin(), overrides.end());
    config::Config c = config::parse_config(
        "model: {family: decoder, vocab_size: 260, d_model: 16, n_layers: 1, n_heads: 2, d_ff: 16, "
        "max_seq_len: 8, dropout: 0.1}\n"
        "train: {steps: 10, seq_len: 8, global_batch_size: 2}\n"
        "optimizer: {lr: 1.0e-2, ema: 0.9}\nschedule: {warmup_steps: 3}\ndevice: cuda\n"
        "data: {train: {type: text, path: a}, validation: {type: text, path: a}}\n"
        "checkpoint: {every: 0}\neval: {every: 0, batches: 1}\nmetrics: {log_every: 1}\n",
        "test", all);
    config::resolve_for_ranks(c, 1);
    return c;
  }
  std::string dir() const { return folder_ / "ck"; }

  // Adds the most steps that were launched, but not yet reported, when the host waited.
  train::TrainOutcome train(const std::vector<std::string>& overrides,
                            const std::function<void(std::size_t reported)>& on_wait = {}) {
    const config::Config c = config(overrides);
    train::StopRequests requests;
    std::size_t before = events("step").size();
    const long launches = runtime.graph_launches;
    runtime.on_wait = [&, launches] {
      const std::size_t reported = events("step").size() - before;
      // The first step is no graph.
      const long launched = runtime.graph_launches - launches + 1;
      ahead = std::max(ahead, launched - static_cast<long>(reported));
      if (on_wait) on_wait(reported);
    };
    const train::TrainOutcome out = train::train(c, comm::single_mesh(), device(), requests);
    runtime.on_wait = {};
    return out;
  }

  // Of metrics.jsonl: lines of this kind without times.
  std::vector<nlohmann::json> events(const std::string& kind) const {
    std::vector<nlohmann::json> all;
    std::ifstream in(folder_ / "run.jsonl");
    for (std::string line; std::getline(in, line);) {
      nlohmann::json j = nlohmann::json::parse(line);
      if (j["event"] != kind) continue;
      for (const char* key : {"time", "tokens_per_second", "step_seconds", "seconds", "phases",
                              "peak_memory_bytes", "path"})
        j.erase(key);
      all.push_back(j);
    }
    return all;
  }

  long ahead = 0;

 private:
  test::TemporaryFolder folder_;
};

std::string last_checkpoint(const TracedRun& run) {
  return test::checkpoint_bytes(
      checkpoint::find_latest(run.dir(), [](const std::string&) {}).value());
}

class AheadTrainer : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { runtime.late = true; }
  void TearDown() override { runtime.on_wait = {}; }
};

// A checkpoint behind each step keeps a run from going ahead.
TEST_P(AheadTrainer, EvaluatesAndSavesWhatIsThereBehindAStep) {
  const std::string precision = std::string("precision=") + GetParam();
  TracedRun one_by_one, ahead;
  one_by_one.train({precision, "checkpoint.every=1", "checkpoint.keep=20", "eval.every=4"});
  ahead.train({precision, "checkpoint.every=5", "eval.every=4"});
  EXPECT_EQ(one_by_one.ahead, 1) << "the step that is waited for";
  EXPECT_EQ(ahead.ahead, 2);
  EXPECT_EQ(ahead.events("step").size(), 10u);
  EXPECT_EQ(ahead.events("step"), one_by_one.events("step"));
  EXPECT_EQ(ahead.events("eval").size(), 3u);
  EXPECT_EQ(ahead.events("eval"), one_by_one.events("eval"));
  for (const char* step : {"/step-00000005", "/step-00000010"}) {
    EXPECT_FALSE(test::checkpoint_bytes(ahead.dir() + step).empty());
    EXPECT_TRUE(test::checkpoint_bytes(ahead.dir() + step) ==
                test::checkpoint_bytes(one_by_one.dir() + step))
        << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, AheadTrainer, testing::Values("fp32", "bf16"),
                         [](const auto& info) { return info.param; });

class AheadRun : public AheadTrainer {};

// The first scale overflows, and several halves of it.
TEST_F(AheadRun, OverflowsAreThoseOfOneStepAfterTheOther) {
  TracedRun one_by_one, ahead;
  for (TracedRun* run : {&one_by_one, &ahead}) {
    const config::Config c = run->config({"precision=fp16"});
    train::Engine e(plan::make_step_plan(c, comm::single_mesh()), device());
    e.initialize_parameters();
    const auto written = checkpoint::write_checkpoint(
        run->dir(), {.config = config::dump_config(c), .loss_scale = {0x1p26, 0, true}},
        train::checkpoint_chunks(e), 0, {});
    ASSERT_TRUE(written.ok()) << written.error;
    run->train({"precision=fp16", "train.steps=12",
                "checkpoint.every=" + std::to_string(run == &one_by_one)});
  }
  EXPECT_EQ(one_by_one.ahead, 1);
  EXPECT_GT(ahead.ahead, 2) << "steps that were launched again are counted twice";
  const auto steps = ahead.events("step");
  EXPECT_EQ(steps, one_by_one.events("step"));
  EXPECT_LT(steps.back()["loss_scale"], 0x1p26);
  EXPECT_GT(steps.back()["loss_scale"], 0x1p15) << "the last steps have updates";
  EXPECT_TRUE(last_checkpoint(ahead) == last_checkpoint(one_by_one));
}

// Steps 2 to 5 are not finite; 3, 4 and 5 are launched ahead of that, and again.
TEST_F(AheadRun, EndsWithNothingUnderWayWhereNothingIsFinite) {
  TracedRun run;
  const long launches = runtime.graph_launches;
  try {
    run.train({"optimizer.lr=1e30"});
    ADD_FAILURE() << "it went on";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::numerical) << e.what();
    EXPECT_NE(std::string(e.what()).find("step 5: "), std::string::npos) << e.what();
  }
  EXPECT_EQ(runtime.graph_launches - launches, 5 - 1 + 3) << "the first step is no graph";
}

TEST_F(AheadRun, AStopIsObeyedBehindTheStepThatIsUnderWay) {
  TracedRun whole, stopped;
  whole.train({});
  const train::TrainOutcome out = stopped.train({}, [&](std::size_t reported) {
    if (reported == 4) std::ofstream(stopped.dir() + "/STOP") << "";
  });
  EXPECT_TRUE(out.stopped);
  EXPECT_EQ(out.step, 6) << "asked for during step 5, with step 6 on the device";
  EXPECT_EQ(stopped.events("step").size(), 6u);
  EXPECT_EQ(stopped.events("checkpoint").size(), 1u);
  EXPECT_EQ(stopped.events("checkpoint").front()["step"], 6);
  EXPECT_FALSE(fs::exists(stopped.dir() + "/STOP"));
  EXPECT_EQ(stopped.train({}).step, 10);
  EXPECT_EQ(stopped.events("step"), whole.events("step"));
  EXPECT_TRUE(last_checkpoint(stopped) == last_checkpoint(whole));
}

// SIGUSR1: the run goes on, ahead again.
TEST_F(AheadRun, ACheckpointOnRequestIsOfTheStepItNames) {
  TracedRun whole, asked;
  whole.train({"checkpoint.every=1", "checkpoint.keep=20"});
  bool sent = false;
  asked.train({}, [&](std::size_t reported) {
    if (reported == 4 && !std::exchange(sent, true)) ::kill(::getpid(), SIGUSR1);
  });
  const auto written = asked.events("checkpoint");
  ASSERT_EQ(written.size(), 2u);
  EXPECT_EQ(written[0]["step"], 6);
  EXPECT_TRUE(test::checkpoint_bytes(asked.dir() + "/step-00000006") ==
              test::checkpoint_bytes(whole.dir() + "/step-00000006"));
  EXPECT_EQ(asked.events("step"), whole.events("step"));
}

}  // namespace
}  // namespace tfm
