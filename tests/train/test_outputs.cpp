// The numbers of a run in each of its outputs, from steps whose results a test makes up.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "models/registry.h"
#include "plan/live_memory.h"
#include "support/training.h"
#include "train/step_phases.h"

namespace tfm {
namespace {

using train::Observer;
using train::StepResult;

class Outputs : public test::Training {
 protected:
  // 320 tokens in half a second: 640 tokens/s. 4e9 of 16e9 FLOP/s: half of the peak.
  static void set_numbers(train::TrainingRun& run) {
    run.seconds = 0.5;
    run.flops = 4e9;
    run.machine.peak_flops = 16e9;
    run.lr = 3e-4;
    run.phases = {{"data", 0.125}, {"forward", 0.25}, {"other", 0.125}};
    run.time_left.add_step(0.5);
  }
  static StepResult result(double loss = 2.5) {
    StepResult r{.loss = loss, .grad_norm = 0.75, .tokens = 320, .loss_scale = 2048};
    r.terms.loss[0] = loss * 320, r.terms.labels[0] = 320, r.terms.weights[0] = 1;
    return r;
  }
  static std::vector<nlohmann::json> events(const std::string& path, const std::string& kind) {
    std::vector<nlohmann::json> found;
    std::istringstream in(test::get(path));
    for (std::string line; std::getline(in, line);)
      if (auto json = nlohmann::json::parse(line); json["event"] == kind) found.push_back(json);
    return found;
  }
  static std::set<std::int64_t> steps_of(const std::vector<nlohmann::json>& all) {
    std::set<std::int64_t> steps;
    for (const auto& e : all) steps.insert(e["step"].get<std::int64_t>());
    return steps;
  }
};

TEST_F(Outputs, StepsAreLoggedWhenDueAndTheLastAlways) {
  Run run(run_config({"train.steps=7", "metrics.log_every=3"}));
  std::set<std::int64_t> logged, over;
  for (run.step = 1; run.step <= 8; ++run.step) {
    if (run.logged()) logged.insert(run.step);
    if (run.over()) over.insert(run.step);
  }
  EXPECT_EQ(logged, (std::set<std::int64_t>{3, 6, 7}));
  EXPECT_EQ(over, (std::set<std::int64_t>{7, 8}));
  EXPECT_FALSE(run.due(0));
  run.config.metrics.log_every = 0;
  run.step = 6;
  EXPECT_FALSE(run.logged());
  run.step = 7;
  EXPECT_TRUE(run.logged());
}

TEST_F(Outputs, UtilizationIsOfThePeakOfAllRanks) {
  Run run(run_config());
  set_numbers(run);
  run.result = result();
  EXPECT_DOUBLE_EQ(run.mfu().value(), 4e9 / 0.5 / 16e9);
  EXPECT_DOUBLE_EQ(run.tokens_per_second(), 640);
  run.machine.peak_flops = 0;
  EXPECT_FALSE(run.mfu());
}

TEST_F(Outputs, FilesMayTakeAsLongAsASlowDisk) {
  Run run(run_config());
  const auto parameters = static_cast<double>(run.engine.model().parameters().total_elements());
  EXPECT_DOUBLE_EQ(run.file_timeout(), 300 + parameters * 16 / 20e6);
  run.config.parallel.timeout = 7;
  EXPECT_DOUBLE_EQ(run.file_timeout(), 7 + parameters * 16 / 20e6);
}

TEST(StepTimeout, IsTenTimesTheLongestStepWithinBounds) {
  config::ParallelConfig parallel;
  for (const auto& [longest, seconds] : std::map<double, double>{
           {0, 300}, {0.001, 30}, {2.9, 30}, {3.5, 35}, {20, 200}, {31, 300}, {1000, 300}})
    EXPECT_DOUBLE_EQ(train::step_timeout(parallel, longest), seconds) << longest;
  parallel.timeout = 5;
  for (const double longest : {0.0, 3.5, 1000.0})
    EXPECT_EQ(train::step_timeout(parallel, longest), 5);
}

TEST_F(Outputs, LinesOfMetrics) {
  Run run(run_config({"metrics.jsonl=m/run.jsonl", "metrics.log_every=2", "train.steps=5",
                      "eval.metrics=[loss, accuracy]"}));
  run.add(train::write_metrics());
  set_numbers(run);
  run.planned_bytes = 123456;
  run.machine.peak_from = "a table";
  run.machine.host = {.cpu = "", .ranks = 3, .threads = 2, .cores = 8, .oversubscribed = true};
  run.tell(&Observer::on_start);
  for (std::int64_t step = 1; step <= 5; ++step) run.finish_step(step, result());
  train::EvaluationResult evaluated{.values = {{config::Metric::loss, 1.5},
                                               {config::Metric::perplexity, 4.5},
                                               {config::Metric::accuracy, 0.25}},
                                    .tokens = 77,
                                    .seconds = 0.375};
  run.tell(&Observer::after_evaluation, evaluated);
  const checkpoint::CheckpointResult written{.path = "ck/x", .bytes = 5}, failed{.error = "full"};
  run.tell(&Observer::after_checkpoint, train::WrittenCheckpoint{written, 0.625});
  run.tell(&Observer::after_checkpoint, train::WrittenCheckpoint{failed, 9});
  run.arena_bytes = 99;
  run.tell(&Observer::at_end);

  const auto start = events("m/run.jsonl", "start").at(0);
  EXPECT_EQ(start["run"], "small");
  EXPECT_EQ(start["parameters"], run.engine.model().parameters().trained_elements());
  EXPECT_EQ(start["planned_bytes"], 123456);
  EXPECT_EQ(start["resumed_step"], 0);
  EXPECT_EQ(start["world"], 1);
  EXPECT_EQ(start["flops_per_step"], 4e9);
  EXPECT_EQ(start["peak_flops"], 16e9);
  EXPECT_EQ(start["peak_from"], "a table");
  EXPECT_EQ(start["host"], (nlohmann::json{{"cpu", nullptr},
                                           {"device", "cpu"},
                                           {"ranks", 3},
                                           {"threads", 2},
                                           {"cores", 8},
                                           {"oversubscribed", true}}));
  EXPECT_EQ(start["collectives"], nlohmann::json::array());
  std::int64_t memory = 0;
  for (const auto& [kind, bytes] : start["memory"].items()) memory += bytes.get<std::int64_t>();
  EXPECT_EQ(memory, run.engine.plan().memory.total());
  const auto activations = start["activations"];
  const auto n = activations["instructions"].get<std::size_t>();
  EXPECT_EQ(n, run.engine.plan().largest().train_program.instructions().size());
  EXPECT_EQ(activations["bytes"].size(), std::min<std::size_t>(n, 240));
  EXPECT_GT(activations["backward"], 0);
  EXPECT_LT(activations["backward"].get<std::size_t>(), activations["bytes"].size());
  std::int64_t most = 0;
  for (const auto& bytes : activations["bytes"]) most = std::max(most, bytes.get<std::int64_t>());
  EXPECT_GT(most, 0);
  EXPECT_LE(most, start["memory"]["activations"].get<std::int64_t>() +
                      start["memory"]["gradients"].get<std::int64_t>());

  const auto steps = events("m/run.jsonl", "step");
  EXPECT_EQ(steps_of(steps), (std::set<std::int64_t>{2, 4, 5}));
  const auto step = steps.at(0);
  for (const auto& [key, value] : std::map<std::string, double>{{"loss", 2.5},
                                                                {"grad_norm", 0.75},
                                                                {"lr", 3e-4},
                                                                {"tokens", 320},
                                                                {"tokens_per_second", 640},
                                                                {"step_seconds", 0.5},
                                                                {"mfu", 0.5},
                                                                {"loss_scale", 2048}})
    EXPECT_DOUBLE_EQ(step.at(key).get<double>(), value) << key;
  EXPECT_EQ(step["phases"], (nlohmann::json{{"data", 0.125}, {"forward", 0.25}, {"other", 0.125}}));
  const auto peak = step["peak_memory_bytes"].get<double>();
  EXPECT_GT(peak, 4 << 20);
  EXPECT_LT(peak, 64e9);
  EXPECT_FALSE(step.contains("busiest_expert") || step.contains("expert_load"));

  const auto eval = events("m/run.jsonl", "eval").at(0);
  EXPECT_EQ(eval["split"], "validation");
  EXPECT_EQ(eval["loss"], 1.5);
  EXPECT_EQ(eval["accuracy"], 0.25);
  EXPECT_EQ(eval["perplexity"], 4.5);
  EXPECT_FALSE(eval.contains("bleu"));
  EXPECT_EQ(eval["tokens"], 77);
  EXPECT_EQ(eval["seconds"], 0.375);
  const auto saved = events("m/run.jsonl", "checkpoint");
  ASSERT_EQ(saved.size(), 1u);
  EXPECT_EQ(saved[0]["seconds"], 0.625);
  EXPECT_EQ(saved[0]["path"], "ck/x");
  const auto end = events("m/run.jsonl", "end").at(0);
  EXPECT_EQ(end["step"], 5);
  EXPECT_EQ(end["reason"], "steps");
  EXPECT_EQ(end["arena_high_water_bytes"], 99);
  EXPECT_FALSE(end.contains("best_step"));
}

TEST_F(Outputs, ActivationsOfManyInstructionsAreInEqualParts) {
  Run run(run_config({"metrics.jsonl=m.jsonl", "model.n_layers=12"}));
  run.add(train::write_metrics());
  run.tell(&Observer::on_start);
  const auto json = events("m.jsonl", "start").at(0)["activations"];
  const graph::Program& program = run.engine.plan().largest().train_program;
  const std::vector<std::int64_t> live = plan::live_bytes(program);
  ASSERT_GT(live.size(), 240u);
  ASSERT_EQ(json["bytes"].size(), 240u);
  std::vector<std::int64_t> most(240, 0);
  std::size_t backward = live.size();
  for (std::size_t i = 0; i < live.size(); ++i) {
    // Instruction i is in part k where k n / 240 <= i < (k + 1) n / 240, rounded down.
    std::size_t k = 0;
    while ((k + 1) * live.size() / 240 <= i) ++k;
    most[k] = std::max(most[k], live[i]);
    if (program.instructions()[i].phase == graph::Phase::backward) backward = std::min(backward, i);
  }
  EXPECT_EQ(json["bytes"].get<std::vector<std::int64_t>>(), most);
  EXPECT_EQ(json["backward"], backward * 240 / live.size());
}

TEST_F(Outputs, TheEndHasItsReasonAndTheBest) {
  struct Case {
    bool stop, no_improvement;
    std::int64_t best;
    std::string reason;
  };
  for (const Case& c :
       {Case{false, false, -1, "steps"}, Case{true, false, 4, "request"},
        Case{false, true, 4, "no_improvement"}, Case{true, true, 0, "no_improvement"}}) {
    Run run(run_config({"metrics.jsonl=end.jsonl"}));
    run.add(train::write_metrics());
    stdout_of([&] { run.tell(&Observer::on_start); });
    run.stop_requested = c.stop;
    run.no_improvement = c.no_improvement;
    run.best = {.metric = config::Metric::accuracy, .step = c.best, .value = 0.5};
    run.tell(&Observer::at_end);
    const auto end = events("end.jsonl", "end").at(0);
    EXPECT_EQ(end["reason"], c.reason);
    EXPECT_EQ(end.contains("best_accuracy"), c.best >= 0);
    if (c.best < 0) continue;
    EXPECT_EQ(end["best_step"], c.best);
    EXPECT_EQ(end["best_accuracy"], 0.5);
  }
}

TEST_F(Outputs, AnUnknownPeakIsNoNumber) {
  Run run(run_config({"metrics.jsonl=m.jsonl"}));
  run.add(train::write_metrics());
  set_numbers(run);
  run.machine.peak_flops = 0;
  run.tell(&Observer::on_start);
  run.finish_step(1, result());
  EXPECT_FALSE(events("m.jsonl", "start").at(0).contains("peak_flops"));
  EXPECT_TRUE(events("m.jsonl", "step").at(0)["mfu"].is_null());
}

TEST_F(Outputs, AResumedRunGoesOnInItsMetrics) {
  for (const bool due : {false, true}) {
    const std::string line = R"({"event":"eval","step":3,"split":"validation","loss":1})";
    test::put("m.jsonl", R"({"event":"start"})"
                         "\n"
                         R"({"event":"step","step":3})"
                         "\n" +
                             line + "\n" + R"({"event":"step","step":4})" + "\n");
    Run run(run_config({"metrics.jsonl=m.jsonl"}));
    run.add(train::write_metrics());
    run.step = 3;
    run.evaluation_due = due;
    EXPECT_EQ(stdout_of([&] { run.tell(&Observer::on_start); }), "");
    EXPECT_EQ(steps_of(events("m.jsonl", "step")), std::set<std::int64_t>{3});
    EXPECT_EQ(events("m.jsonl", "eval").size(), due ? 0u : 1u);
    EXPECT_EQ(events("m.jsonl", "start").at(1)["resumed_step"], 3);
  }
}

TEST_F(Outputs, MetricsThatCannotBeWrittenAreAWarning) {
  test::put("file", "");
  Run run(run_config({"metrics.jsonl=file/m.jsonl", "metrics.tensorboard=file/events"}));
  run.add(train::write_metrics());
  run.add(train::write_tensorboard());
  const std::string said = stderr_of([&] {
    run.tell(&Observer::on_start);
    run.finish_step(4, result());
    run.tell(&Observer::at_end);
  });
  EXPECT_TRUE(test::has_text(said, "warning: metrics.jsonl: ")) << said;
  EXPECT_TRUE(test::has_text(said, "warning: metrics.tensorboard: ")) << said;
}

// More than 256 experts over all layers: every so manieth logged step has the load of each.
TEST_F(Outputs, LinesHaveAtMost256LoadsOfExpertsOnAverage) {
  struct Case {
    int layers, experts, log_every;
    std::set<std::int64_t> steps;
  };
  for (const Case& c : {Case{1, 256, 1, {1, 2, 3, 4, 5, 6, 7}}, Case{2, 129, 1, {2, 4, 6, 7}},
                        Case{2, 129, 2, {4, 7}}}) {
    Run run(run_config({"metrics.jsonl=m.jsonl", "train.steps=7",
                        "metrics.log_every=" + std::to_string(c.log_every),
                        "model.n_layers=" + std::to_string(c.layers), "model.d_ff=2",
                        "model.experts.count=" + std::to_string(c.experts)}));
    run.add(train::write_metrics());
    stdout_of([&] { run.tell(&Observer::on_start); });
    for (std::int64_t step = 1; step <= 7; ++step) run.finish_step(step, result());
    std::set<std::int64_t> with;
    for (const auto& e : events("m.jsonl", "step")) {
      EXPECT_TRUE(e.contains("busiest_expert"));
      if (!e.contains("expert_load")) continue;
      with.insert(e["step"].get<std::int64_t>());
      EXPECT_EQ(e["expert_load"].size(), static_cast<std::size_t>(c.layers));
    }
    EXPECT_EQ(with, c.steps) << c.layers << " " << c.log_every;
  }
}

TEST_F(Outputs, TheLogHasLogEveryEvaluationAndCheckpoint) {
  Run run(run_config({"metrics.log_every=2", "train.steps=5", "eval.metrics=[accuracy]"}));
  run.add(train::print_log());
  set_numbers(run);
  run.planned_bytes = 3 << 20;
  run.machine.host.threads = 5;
  run.machine.notes = {"a note"};
  run.data.notes = {"of the data"};
  std::string said = stdout_of([&] { run.tell(&Observer::on_start); });
  EXPECT_TRUE(test::has_text(said, " 16 tokens per step, 3 MiB per rank, ")) << said;
  EXPECT_TRUE(test::has_text(said, "device cpu, 5 threads per rank, ")) << said;
  EXPECT_TRUE(test::has_text(said, "a note\nof the data\n")) << said;
  EXPECT_FALSE(test::has_text(said, "is done")) << said;
  said = stdout_of([&] {
    for (std::int64_t step = 1; step <= 5; ++step) run.finish_step(step, result());
  });
  EXPECT_EQ(std::ranges::count(said, '\n'), 3) << said;
  EXPECT_TRUE(
      said.starts_with("step 2/5 40.0% | loss 2.5000 | gnorm 0.75 | lr 3.00e-04 | 640 "
                       "tok/s | 50.0% MFU | mem "))
      << said;
  EXPECT_TRUE(test::has_text(said, "| 500 ms | eta 2s\n")) << "three steps: 1.5 s " << said;
  EXPECT_TRUE(test::has_text(said, "step 5/5 100.0%") && test::has_text(said, "eta 0s")) << said;
  said = stdout_of([&] {
    run.tell(&Observer::after_evaluation,
             train::EvaluationResult{.values = {{config::Metric::loss, 1.5},
                                                {config::Metric::perplexity, 4.5},
                                                {config::Metric::accuracy, 0.25}},
                                     .tokens = 77});
  });
  EXPECT_EQ(
      said,
      "validation at step 5 | loss 1.5000 | perplexity 4.5000 | accuracy 0.2500 | 77 tokens\n");
  checkpoint::CheckpointResult saved{.path = "ck/x", .bytes = 7 << 20};
  const auto checkpoint = [&] {
    run.tell(&Observer::after_checkpoint, train::WrittenCheckpoint{saved, 3});
  };
  EXPECT_EQ(stdout_of(checkpoint), "checkpoint ck/x | 7 MiB in 3s\n");
  saved.warning = "not removed";
  EXPECT_EQ(stderr_of([&] { EXPECT_TRUE(test::has_text(stdout_of(checkpoint), "ck/x")); }),
            "warning: not removed\n");
  saved = {.error = "full"};
  const std::string failed = stderr_of([&] { EXPECT_EQ(stdout_of(checkpoint), ""); });
  EXPECT_TRUE(test::has_text(failed, "checkpoint of step 5: full; training continues")) << failed;
  run.step = 5;
  said = stdout_of([&] { run.tell(&Observer::on_start); });
  EXPECT_TRUE(test::has_text(said, "step 5 of 5 is done; raise train.steps")) << said;
  EXPECT_FALSE(test::has_text(said, "ends with train.steps")) << "the rate is constant: " << said;
}

// The value of the line of a page that begins so; nullopt: there is none.
std::optional<double> scraped(const std::string& page, const std::string& name) {
  std::istringstream in(page);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(name)) return std::stod(line.substr(line.rfind(' ')));
  return {};
}

std::string scrape(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  const std::string request =
      "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  EXPECT_EQ(::send(fd, request.data(), request.size(), 0), std::ssize(request));
  std::string answer;
  char part[4096];
  for (ssize_t n; (n = ::recv(fd, part, sizeof part, 0)) > 0;)
    answer.append(part, static_cast<std::size_t>(n));
  ::close(fd);
  return answer;
}

TEST_F(Outputs, ServedMetrics) {
  for (const bool half : {false, true}) {
    Run run(run_config({"metrics.listen=127.0.0.1:0", "metrics.log_every=2", "train.steps=9",
                        half ? "precision=fp16" : "precision=fp32", "eval.metrics=[accuracy]"}));
    run.rank_times.emplace(run.mesh, run.engine.rank_context().tensors);
    run.add(train::serve_metrics());
    set_numbers(run);
    run.step = 2;  // as resumed
    const std::string said = stdout_of([&] { run.tell(&Observer::on_start); });
    const int port = std::stoi(said.substr(said.find("127.0.0.1:") + 10));
    const auto value = [&](const std::string& name) { return scraped(scrape(port), name); };
    const auto step = [&](std::int64_t number, StepResult r) {
      run.rank_times->add(run.phases);
      if (number % 2 == 0) run.rank_times->gather();
      run.finish_step(number, r);
    };
    EXPECT_FALSE(value("tfm_loss{"));
    step(3, result());
    StepResult skipped = result(3);
    skipped.applied = false;  // in fp16 for a loss scale that is too large
    skipped.loss_scale = 4096;
    skipped.tokens = 160;
    step(4, skipped);
    const std::string page = scrape(port);
    for (const auto& [name, expected] :
         std::map<std::string, double>{{"tfm_step{", 4},
                                       {"tfm_planned_steps{", 9},
                                       {"tfm_steps_total{", 2},
                                       {"tfm_tokens_total{", 480},
                                       {"tfm_tokens_per_second{", 320},
                                       {"tfm_mfu_ratio{", 0.5},
                                       {"tfm_loss{", 3},
                                       {"tfm_grad_norm{", 0.75},
                                       {"tfm_learning_rate{", 3e-4},
                                       {"tfm_step_duration_seconds_sum{", 1},
                                       {"tfm_eta_seconds{", 5 * 0.5},
                                       {"tfm_nonfinite_steps_total{", 1},
                                       {"tfm_resumed_step{", 2},
                                       {"tfm_run_ended{", 0}})
      EXPECT_DOUBLE_EQ(scraped(page, name).value_or(-1), expected) << name;
    EXPECT_EQ(scraped(page, "tfm_loss_scale{"), half ? std::optional<double>(4096) : std::nullopt);
    double phases = 0;
    std::istringstream lines(page);
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("tfm_phase_seconds_total{")) {
        phases += std::stod(line.substr(line.rfind(' ')));
        EXPECT_TRUE(test::has_text(line, R"(rank="0")")) << line;
      }
    EXPECT_DOUBLE_EQ(phases, 2 * 0.5) << "of both steps";
    EXPECT_FALSE(scraped(page, "tfm_straggler_seconds")) << "of one rank";
    EXPECT_FALSE(scraped(page, "tfm_replans_total"));
    EXPECT_TRUE(test::has_text(page, R"(model="decoder")"));
    step(5, result(7));
    EXPECT_EQ(value("tfm_loss{"), 7) << "also of steps that are not logged";
    EXPECT_EQ(value("tfm_nonfinite_steps_total{"), 1);
    EXPECT_EQ(value("tfm_loss_scale{"), half ? std::optional<double>(4096) : std::nullopt)
        << "of the last one that is";

    run.tell(&Observer::after_evaluation,
             train::EvaluationResult{.values = {{config::Metric::loss, 1.5},
                                                {config::Metric::perplexity, 4.5},
                                                {config::Metric::accuracy, 0.25}}});
    EXPECT_EQ(value("tfm_eval_accuracy{"), 0.25);
    EXPECT_EQ(value("tfm_eval_loss{"), 1.5);
    EXPECT_EQ(value("tfm_eval_perplexity{"), 4.5);
    checkpoint::CheckpointResult saved{.path = "ck/x"}, failed{.error = "full"};
    EXPECT_FALSE(value("tfm_last_checkpoint_step{"));
    run.tell(&Observer::after_checkpoint, train::WrittenCheckpoint{failed, 1});
    EXPECT_FALSE(value("tfm_last_checkpoint_step{"));
    EXPECT_EQ(value("tfm_checkpoint_failures_total{"), 1);
    run.tell(&Observer::after_checkpoint, train::WrittenCheckpoint{saved, 1});
    EXPECT_EQ(value("tfm_last_checkpoint_step{"), 5);
    EXPECT_EQ(value("tfm_checkpoint_failures_total{"), 1);
  }
}

TEST_F(Outputs, WithoutAnAddressNothingIsServed) {
  Run run(run_config());
  run.add(train::serve_metrics());
  EXPECT_EQ(stdout_of([&] {
              run.tell(&Observer::on_start);
              run.finish_step(1, result());
              run.tell(&Observer::at_end);
            }),
            "");
  run.config.metrics.listen = "192.0.2.1:9750";  // of no machine
  const std::string said = stderr_of([&] {
    run.tell(&Observer::on_start);
    run.finish_step(2, result());
  });
  EXPECT_TRUE(test::has_text(said, "warning: metrics are not served: ")) << said;
}

TEST_F(Outputs, PhasesAddUpToTheStep) {
  Run run(run_config());
  const graph::Program& program = run.engine.plan().shapes[0].train_program;
  train::StepTimes times;
  std::map<graph::Phase, double> expected;
  for (std::size_t i = 0; i < program.instructions().size(); ++i) {
    times.program.push_back(static_cast<double>(i + 1));
    expected[program.instructions()[i].phase] += static_cast<double>(i + 1);
  }
  times.norm = 0.25, times.update = 0.5;
  const double whole = 1e6;
  std::map<std::string, double> found;
  double sum = 0;
  for (const auto& [name, seconds] : phases_of_step(program, times, 0.125, whole)) {
    EXPECT_NE(std::ranges::find(train::kPhases, name), train::kPhases.end()) << name;
    found[std::string(name)] = seconds;
    sum += seconds;
  }
  EXPECT_DOUBLE_EQ(sum, whole);
  EXPECT_EQ(found["data"], 0.125);
  EXPECT_EQ(found["forward"], expected[graph::Phase::forward]);
  EXPECT_EQ(found["backward"], expected[graph::Phase::backward]);
  EXPECT_EQ(found["recompute"], expected[graph::Phase::recompute]);
  EXPECT_EQ(found["reduce"], expected[graph::Phase::reduce]);
  EXPECT_EQ(found["optimizer"], 0.75);
  EXPECT_FALSE(found.contains("gather"));
}

TEST_F(Outputs, LoadsOfExpertsAreMultiplesOfTheirMean) {
  Run run(run_config(
      {"model.n_layers=2", "model.d_ff=4", "model.experts.count=4", "model.experts.top_k=2"}));
  train::ExpertLoad& load = run.expert_load;
  ASSERT_EQ(load.layers().size(), 2u);
  EXPECT_EQ(load.layers()[1].name, "layers.1");
  data::DataLoader loader = run.engine.training_loader(*run.data.train);
  run.result = run.engine.train_step(1, 0, loader.load(0));
  load.gather(run.engine, run.result.shape);
  double entropy = 0;
  for (const auto& layer : load.layers()) {
    double sum = 0, most = 0;
    for (const double x : layer.loads) {
      sum += x, most = std::max(most, x);
      // Of 16 tokens with two experts each an even share is eight.
      EXPECT_NEAR(x * 8, std::round(x * 8), 1e-9);
    }
    EXPECT_NEAR(sum, 4, 1e-9) << "the mean is 1";
    EXPECT_EQ(layer.most(), most);
    EXPECT_EQ(layer.busiest_rank, 1) << "of one";
    EXPECT_GT(layer.entropy, 0.9 * std::log(4)) << "nearly even at random weights, in nats";
    EXPECT_LE(layer.entropy, std::log(4) + 1e-6);
    entropy += layer.entropy / 2;
  }
  EXPECT_DOUBLE_EQ(load.entropy(), entropy);
  EXPECT_DOUBLE_EQ(load.most(), std::max(load.layers()[0].most(), load.layers()[1].most()));
  EXPECT_EQ(load.busiest_rank(), 1);
}

}  // namespace
}  // namespace tfm
