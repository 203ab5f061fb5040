// What a run does besides its steps, on steps whose results a test makes up.
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <limits>
#include <nlohmann/json.hpp>

#include "support/training.h"

namespace tfm {
namespace {

using train::Observer;
using train::StepResult;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(),
                 kInfinite = std::numeric_limits<double>::infinity();

StepResult skipped_step(double loss) {
  return {.loss = loss, .grad_norm = kInfinite, .tokens = 16, .applied = false};
}
StepResult good_step(double loss = 2) { return {.loss = loss, .grad_norm = 1, .tokens = 16}; }

using Observers = test::Training;

TEST_F(Observers, AStepIsNonfiniteUnlessTheLossScaleWasTooLarge) {
  Run run(run_config());
  struct Case {
    bool applied, dynamic;
    double scale, loss;
    bool nonfinite;
  };
  for (const Case& c :
       {Case{true, false, 1, 2, false}, Case{false, false, 1, 2, true},
        Case{false, true, 65536, 2, false}, Case{false, true, 1, 2, false},
        Case{false, true, 0.5, 2, true}, Case{false, true, 65536, kNan, true},
        Case{false, true, 65536, kInfinite, true}, Case{true, true, 0.5, 2, false}}) {
    run.engine.loss_scale() = {.value = c.scale, .dynamic = c.dynamic};
    run.result = good_step(c.loss);
    run.result.applied = c.applied;
    EXPECT_EQ(run.nonfinite(), c.nonfinite) << c.scale << " " << c.loss;
    // The fourth of such steps in a row ends the run.
    Run other(run_config());
    other.engine.loss_scale() = run.engine.loss_scale();
    const Observer& watch = other.add(train::watch_nonfinite_steps());
    int done = 0;
    std::optional<Error> error;
    const std::string said = stderr_of([&] {
      try {
        for (; done < 8; ++done) {
          EXPECT_EQ(watch.needs_engine(other), !c.applied && done >= 3) << done;
          other.finish_step(done + 1, run.result);
        }
        other.tell(&Observer::at_end);
      } catch (const Error& e) {
        error = e;
      }
    });
    EXPECT_EQ(done, c.nonfinite ? 3 : 8);
    ASSERT_EQ(error.has_value(), c.nonfinite);
    if (error) {
      EXPECT_EQ(error->code(), ExitCode::numerical);
      EXPECT_TRUE(test::has_text(error->what(), "step 4: ")) << error->what();
      EXPECT_TRUE(test::has_text(error->what(), "4 consecutive steps")) << error->what();
      EXPECT_TRUE(test::has_text(error->what(), "earlier checkpoint in ck")) << error->what();
    }
    EXPECT_EQ(test::has_text(said, "update skipped"), !c.applied);
    EXPECT_EQ(test::has_text(said, "loss scale now "), !c.applied && c.dynamic) << said;
    EXPECT_FALSE(test::has_text(said, "consecutive")) << said;
  }
}

TEST_F(Observers, NonfiniteStepsCountInARow) {
  Run run(run_config({"checkpoint.dir=none"}));
  run.add(train::watch_nonfinite_steps());
  std::string said = stderr_of([&] {
    for (std::int64_t step = 1; step <= 12; ++step)
      run.finish_step(step, step % 4 == 0 ? good_step() : skipped_step(kNan));
    run.tell(&Observer::at_end);
  });
  EXPECT_FALSE(test::has_text(said, "checkpoint.resume")) << said;
  EXPECT_FALSE(test::has_text(said, "step 12")) << said;
  said = stderr_of([&] {
    run.finish_step(13, skipped_step(kNan));
    run.tell(&Observer::at_end);
  });
  EXPECT_TRUE(test::has_text(said, "was NaN or infinite in 1 step;")) << said;
  EXPECT_FALSE(test::has_text(said, "checkpoint.resume")) << "there are no checkpoints: " << said;
}

// Signals, of which the next poll takes what is pending.
class Requested : public Observers {
 protected:
  train::StopRequests requests_;
};

TEST_F(Requested, AStopEndsTheRunUnlessItIsDoneAnyway) {
  Run run(run_config());
  run.add(train::obey_requests(requests_));
  run.finish_step(1, good_step());
  EXPECT_FALSE(run.save || run.stop_requested);
  ::raise(SIGUSR1);
  run.finish_step(2, good_step());
  EXPECT_TRUE(run.save);
  EXPECT_FALSE(run.stop_requested) << "a checkpoint alone was asked for";
  run.finish_step(2, good_step());
  EXPECT_FALSE(run.save) << "once";
  ::raise(SIGTERM);
  run.finish_step(4, good_step());
  EXPECT_FALSE(run.stop_requested) << "the last step is done";
  EXPECT_TRUE(run.save);
  EXPECT_EQ(stdout_of([&] { run.tell(&Observer::at_end); }), "");
  run.finish_step(3, good_step());
  EXPECT_TRUE(run.stop_requested && run.save && run.over());
  EXPECT_TRUE(test::has_text(stdout_of([&] { run.tell(&Observer::at_end); }),
                             "stopped on request after step 3\n"));
}

TEST_F(Requested, AreObeyedOnceNothingIsUnderWay) {
  Run run(run_config());
  const Observer& obeys = run.add(train::obey_requests(requests_));
  EXPECT_FALSE(obeys.needs_engine(run));
  ::raise(SIGUSR2);
  run.ahead = true;
  run.finish_step(1, good_step());
  EXPECT_FALSE(run.stop_requested || run.save);
  EXPECT_TRUE(obeys.needs_engine(run)) << "so that the next step is not launched";
  run.ahead = false;
  run.finish_step(2, good_step());
  EXPECT_TRUE(run.stop_requested && run.save);
}

TEST_F(Requested, DuringAnEvaluationAStopIsSeenAndACheckpointWaits) {
  Run run(run_config({"checkpoint.dir=none"}));
  run.add(train::obey_requests(requests_));
  ::raise(SIGUSR1);
  run.tell(&Observer::during_evaluation);
  EXPECT_FALSE(run.stop_requested || run.save);
  const std::string said = stderr_of([&] { run.finish_step(1, good_step()); });
  EXPECT_TRUE(run.save) << "the request is not lost";
  EXPECT_TRUE(test::has_text(said, "nothing is saved")) << said;
  ::raise(SIGTERM);
  run.tell(&Observer::during_evaluation);
  EXPECT_TRUE(run.stop_requested);
  EXPECT_TRUE(test::has_text(stdout_of([&] { run.tell(&Observer::at_end); }),
                             "checkpoint.dir is none, so nothing was saved"));
}

TEST_F(Requested, TheFileIsObeyedOnceThereIsACheckpoint) {
  Run run(run_config());
  run.add(train::obey_requests(requests_));
  std::filesystem::create_directory("ck");
  EXPECT_EQ(stderr_of([&] { run.tell(&Observer::on_start); }), "");
  test::put("ck/STOP", "");
  EXPECT_TRUE(test::has_text(stderr_of([&] { run.tell(&Observer::on_start); }), "ck/STOP"));
  run.finish_step(1, good_step());
  EXPECT_TRUE(run.stop_requested);
  checkpoint::CheckpointResult written{.path = "ck/step-00000001"}, failed{.error = "full"};
  const auto end_after = [&](const checkpoint::CheckpointResult& result) {
    run.tell(&Observer::after_checkpoint, train::WrittenCheckpoint{result, 1});
    stdout_of([&] { run.tell(&Observer::at_end); });
    return std::filesystem::exists("ck/STOP");
  };
  EXPECT_TRUE(end_after(failed));
  EXPECT_FALSE(end_after(written));
}

TEST_F(Observers, ARunThatIsAskedToStopInItsLastStepIsComplete) {
  for (const int steps : {1, 2}) {
    std::filesystem::create_directory("ck");
    test::put("ck/STOP", "");
    const Done done = trained(
        {"train.steps=" + std::to_string(steps), "metrics.jsonl=m" + std::to_string(steps)});
    ASSERT_FALSE(done.error) << done.error->what();
    EXPECT_EQ(done.outcome.step, 1);
    EXPECT_EQ(done.outcome.stopped, steps == 2);
    EXPECT_EQ(test::has_text(done.out, "stopped on request"), steps == 2) << done.out;
    EXPECT_TRUE(test::has_text(test::get("m" + std::to_string(steps)),
                               steps == 2 ? R"("reason":"request")" : R"("reason":"steps")"));
    EXPECT_FALSE(std::filesystem::exists("ck/STOP"));
    EXPECT_EQ(steps_in("ck"), std::set<std::int64_t>{1});
    std::filesystem::remove_all("ck");
  }
}

TEST_F(Observers, EarlyStopsKeepTheBestAndItsStep) {
  Run run(run_config({"train.steps=100", "eval.every=1", "eval.stop={metric: loss, patience: 2}",
                      "data.validation={type: text, path: text.txt}"}));
  run.add(train::stop_early(run));
  ASSERT_TRUE(run.best);
  EXPECT_EQ(run.best->step, -1);
  run.tell(&Observer::on_start);
  EXPECT_FALSE(run.over());
  const auto evaluated = [&](std::int64_t step, double loss) {
    run.step = step;
    run.save = false;
    run.tell(&Observer::after_evaluation,
             train::EvaluationResult{
                 .values = {{config::Metric::loss, loss}, {config::Metric::perplexity, -loss}}});
    return run.save;
  };
  EXPECT_TRUE(evaluated(1, 3));
  EXPECT_TRUE(evaluated(2, 2.5));
  EXPECT_FALSE(evaluated(3, 2.5)) << "no better";
  EXPECT_FALSE(run.no_improvement);
  EXPECT_EQ(stdout_of([&] { run.tell(&Observer::at_end); }), "");
  EXPECT_TRUE(evaluated(4, kNan)) << "the last step of the run is saved";
  EXPECT_TRUE(run.no_improvement && run.over());
  EXPECT_EQ(run.best->step, 2);
  EXPECT_EQ(run.best->value, 2.5);
  const std::string said = stdout_of([&] { run.tell(&Observer::at_end); });
  EXPECT_TRUE(test::has_text(said, "early stop at step 4: 2 evaluations of loss")) << said;
  EXPECT_TRUE(test::has_text(said, "2.5 at step 2")) << said;
  // As a second start finds it, which with more patience goes on.
  run.no_improvement = false;
  run.tell(&Observer::on_start);
  EXPECT_TRUE(run.over());
  run.config.eval.stop->patience = 3;
  run.tell(&Observer::on_start);
  EXPECT_FALSE(run.over());
}

TEST_F(Observers, WithoutEarlyStopsThereIsNoBest) {
  Run run(run_config());
  run.add(train::stop_early(run));
  run.tell(&Observer::on_start);
  run.tell(&Observer::after_evaluation,
           train::EvaluationResult{.values = {{config::Metric::loss, 1}}});
  EXPECT_FALSE(run.best || run.save || run.over());
}

TEST_F(Observers, CheckpointsComeWhenDueAtTheEndAndOnRequest) {
  config::Config c = run_config({"train.steps=5", "checkpoint.every=2", "checkpoint.keep=9"});
  Run run(c);
  const Observer& writes = run.add(train::write_checkpoints(run));
  std::set<std::int64_t> needed;
  for (std::int64_t step = 1; step <= 5; ++step) {
    run.finish_step(step, good_step());
    if (writes.needs_engine(run)) needed.insert(step);
  }
  EXPECT_EQ(needed, (std::set<std::int64_t>{2, 4, 5}));
  EXPECT_EQ(steps_in("ck"), needed);
  run.step = 1, run.save = true;
  run.tell(&Observer::after_step);
  EXPECT_EQ(steps_in("ck"), (std::set<std::int64_t>{1, 2, 4, 5}));
  c.checkpoint.dir = "none";
  Run none(c);
  EXPECT_FALSE(none.add(train::write_checkpoints(none)).needs_engine(none));
  none.step = 5, none.save = true;
  none.tell(&Observer::after_step);
  EXPECT_FALSE(std::filesystem::exists("none"));
}

TEST_F(Observers, ACheckpointSaysWhatItsRunKnew) {
  Run run(run_config(
      {"train.seed=77", "optimizer.ema=0.5", "precision=fp16", "train.global_batch_size=4"}));
  run.add(train::write_checkpoints(run));
  run.engine.updates() = 2;
  run.engine.loss_scale() = {.value = 1024, .updates = 7, .dynamic = true};
  run.provenance = R"({"from":"elsewhere"})";
  run.init = run.config.model.init = "elsewhere";
  run.best = {.metric = config::Metric::loss, .step = 2, .value = 2.5, .since = 1};
  run.evaluation_due = true;
  run.save = true;
  run.step = 3;
  run.tell(&Observer::after_step);
  const checkpoint::Manifest m = checkpoint::CheckpointReader("ck/step-00000003").manifest();
  EXPECT_EQ(m.step, 3);
  EXPECT_EQ(m.updates, 2);
  EXPECT_EQ(m.samples_seen, 3 * 4);
  EXPECT_TRUE(m.evaluation_due);
  EXPECT_EQ(m.data_tokens, run.data.tokens);
  EXPECT_GT(m.data_tokens, 1000) << "a byte of the text each";
  EXPECT_EQ(m.seed, 77u);
  EXPECT_EQ(m.layout.at("data"), 1);
  EXPECT_EQ(m.init, "elsewhere");
  EXPECT_EQ(m.tokenizer, run.data.tokenizer_fingerprint);
  EXPECT_EQ(nlohmann::json::parse(m.extra)["from"], "elsewhere");
  EXPECT_EQ(m.loss_scale.value, 1024);
  EXPECT_EQ(m.loss_scale.updates, 7);
  EXPECT_EQ(m.best, run.best);
  EXPECT_EQ(config::parse_config(m.config, "manifest", {}).model.init, "random")
      << "a checkpoint has weights of its own";
}

TEST_F(Observers, NoEarlierCheckpointIsRemovedForNonfiniteWeights) {
  Run run(run_config({"train.steps=9", "checkpoint.every=1", "checkpoint.keep=2"}));
  run.add(train::write_checkpoints(run));
  for (std::int64_t step = 1; step <= 3; ++step) run.finish_step(step, good_step());
  EXPECT_EQ(steps_in("ck"), (std::set<std::int64_t>{2, 3}));
  for (std::int64_t step = 4; step <= 5; ++step) run.finish_step(step, skipped_step(kNan));
  EXPECT_EQ(steps_in("ck"), (std::set<std::int64_t>{2, 3, 4, 5}));
  run.finish_step(6, good_step());
  EXPECT_EQ(steps_in("ck"), (std::set<std::int64_t>{5, 6}));
}

TEST_F(Observers, AFailedCheckpointEndsTheRunOnlyIfItWasTheLast) {
  Run run(run_config({"checkpoint.every=1"}));
  run.add(train::write_checkpoints(run));
  run.finish_step(1, good_step());
  std::filesystem::rename("ck", "aside");
  test::put("ck", "a file");
  run.finish_step(2, good_step());
  test::expect_error(ExitCode::retryable, {"the last checkpoint"},
                     [&] { run.tell(&Observer::at_end); });
  std::filesystem::remove("ck");
  std::filesystem::rename("aside", "ck");
  run.finish_step(3, good_step());
  run.tell(&Observer::at_end);
  EXPECT_EQ(steps_in("ck"), (std::set<std::int64_t>{1, 3}));
}

// Asks for a stop once so many batches of an evaluation are done.
class StopWithin final : public Observer {
 public:
  explicit StopWithin(int batches) : batches_(batches) {}
  void during_evaluation(train::TrainingRun& run) override {
    ++seen;
    if (--batches_ == 0) run.stop_requested = true;
  }
  void after_evaluation(train::TrainingRun& run, const train::EvaluationResult& r) override {
    steps.push_back(run.step);
    last = r;
  }
  int seen = 0;
  std::vector<std::int64_t> steps;
  train::EvaluationResult last;

 private:
  int batches_;
};

const std::vector<std::string> kEvaluated{"eval.every=2", "eval.batches=4",
                                          "data.validation={type: text, path: text.txt}"};

TEST_F(Observers, EvaluationsComeWhenDueAndAtTheEnd) {
  for (const std::int64_t every : {0, 2}) {
    Run run(run_config({"train.steps=5", "eval.every=" + std::to_string(every), "eval.batches=3",
                        "data.validation={type: text, path: text.txt}"}));
    StopWithin* const seen = new StopWithin(-1);
    run.add(std::unique_ptr<Observer>(seen));
    const Observer& evaluates = run.add(train::evaluate_regularly(run));
    run.tell(&Observer::on_start);
    for (std::int64_t step = 1; step <= 5; ++step) {
      run.finish_step(step, good_step());
      EXPECT_EQ(evaluates.needs_engine(run), every > 0 && (step % 2 == 0 || step == 5));
    }
    EXPECT_EQ(seen->steps,
              every > 0 ? (std::vector<std::int64_t>{2, 4, 5}) : std::vector<std::int64_t>());
    if (every == 0) continue;
    EXPECT_EQ(seen->seen, 3 * 3);
    EXPECT_EQ(seen->last.tokens, 3 * 2 * 8) << "labels of three batches";
    EXPECT_NEAR(seen->last.values.at(config::Metric::perplexity),
                std::exp(seen->last.values.at(config::Metric::loss)), 1e-9);
    EXPECT_GT(seen->last.seconds, 0);
    EXPECT_LT(seen->last.seconds, 10);
  }
}

TEST_F(Observers, AStopLeavesAnEvaluationToTheNextStartIfThatKnows) {
  struct Case {
    std::vector<std::string> keys;
    bool left;
  };
  for (const Case& c : {Case{{}, true}, Case{{"checkpoint.dir=none"}, false},
                        Case{{"eval.stop={metric: loss, patience: 3}"}, false}}) {
    std::vector<std::string> keys = kEvaluated;
    keys.insert(keys.end(), c.keys.begin(), c.keys.end());
    Run run(run_config(keys));
    StopWithin* const seen = new StopWithin(2);
    run.add(std::unique_ptr<Observer>(seen));
    run.add(train::evaluate_regularly(run));
    const std::string said = stdout_of([&] { run.finish_step(2, good_step()); });
    EXPECT_EQ(run.evaluation_due, c.left);
    EXPECT_EQ(test::has_text(said, "evaluation of step 2 is left to the next start"), c.left);
    EXPECT_EQ(seen->seen, c.left ? 2 : 4) << "batches";
    EXPECT_EQ(seen->steps.size(), c.left ? 0u : 1u);
    if (!c.left) continue;
    run.stop_requested = false;
    run.finish_step(3, good_step());
    EXPECT_FALSE(run.evaluation_due) << "none of step 3 is";
    run.evaluation_due = true;
    run.tell(&Observer::on_start);
    EXPECT_EQ(seen->steps, std::vector<std::int64_t>{3});
    EXPECT_FALSE(run.evaluation_due);
  }
}

}  // namespace
}  // namespace tfm
