// What a report makes of a run's log, against sums and means worked out by hand.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "report/sections.h"

namespace tfm::report {
namespace {

namespace fs = std::filesystem;

class ReportFolder {
 public:
  ReportFolder() { fs::create_directories(path_); }
  ~ReportFolder() { fs::remove_all(path_); }
  std::string write(const std::string& name, const std::string& text) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
    return (path_ / name).parent_path().string();
  }
  Run run(const std::string& lines) const { return read_run(write("one/metrics.jsonl", lines)); }
  std::string path() const { return path_.string(); }

 private:
  const fs::path path_ =
      fs::temp_directory_path() / ("tfm-report-test-" + std::to_string(getpid()));
};

const std::string kStart =
    R"({"event":"start","run":"mine","resumed_step":0,"time":1000,"version":"0.1",)"
    R"("config":"train:\n  steps: 9\nprecision: bf16\n","parameters":123456,"world":4,)"
    R"("planned_bytes":3145728,"layout":{"data":2,"tensor":2},)"
    R"("memory":{"parameters":1048576,"activations":2097152},"rank_flops_per_step":6e9,)"
    R"("activations":{"backward":2,"instructions":9,"bytes":[1024,4096,2048,512]},)"
    R"("collectives":[{"op":"all_reduce","axis":"data","bytes":1024,"count":3},)"
    R"({"op":"all_gather","axis":"tensor","bytes":4096,"count":2},)"
    R"({"op":"all_reduce","axis":"tensor","bytes":1024,"count":1}]})"
    "\n";

std::string step_line(int step, const std::string& loss, double seconds, double time) {
  return R"({"event":"step","step":)" + std::to_string(step) + R"(,"loss":)" + loss +
         R"(,"tokens":100,"tokens_per_second":50,"step_seconds":)" + std::to_string(seconds) +
         R"(,"mfu":0.25,"phases":{"forward":)" + std::to_string(seconds / 2) + R"(,"data":)" +
         std::to_string(seconds / 4) + R"(},"time":)" + std::to_string(time) + "}\n";
}
std::string eval_line(int step, const std::string& loss, double seconds, double time) {
  return R"({"event":"eval","step":)" + std::to_string(step) + R"(,"loss":)" + loss +
         R"(,"seconds":)" + std::to_string(seconds) + R"(,"time":)" + std::to_string(time) + "}\n";
}

std::string cell(const std::string& html, const std::string& what) {
  const std::string row = "<td>" + what + "</td><td>";
  const auto at = html.find(row);
  if (at == html.npos) return "(none)";
  const auto from = at + row.size();
  return html.substr(from, html.find("</td></tr>", from) - from);
}

const std::string kLog = kStart + step_line(1, "4", 5, 1005) + step_line(2, "null", 1, 1006) +
                         eval_line(2, "1.5", 20, 1026) + step_line(3, "2", 3, 1029) +
                         eval_line(3, "1.5", 130, 1159) +
                         R"({"event":"checkpoint","step":3,"seconds":2})"
                         "\n";

TEST(ReportRun, SummarizesWhatIsLogged) {
  const ReportFolder folder;
  const Runs runs{folder.run(kLog)};
  const std::string html = summary(runs);
  EXPECT_EQ(runs[0].name, "mine");
  EXPECT_EQ(cell(html, "state"), "running, or ended without a word");
  EXPECT_EQ(cell(html, "steps"), "3 of 9");
  EXPECT_EQ(cell(html, "last training loss"), "2");
  EXPECT_EQ(cell(html, "best validation loss"), "1.5 at step 2") << "the first of equal ones";
  EXPECT_EQ(cell(html, "parameters"), "123.5k");
  EXPECT_EQ(cell(html, "ranks"), "4 (data 2 x tensor 2)");
  EXPECT_EQ(cell(html, "tokens trained on"), "300");
  EXPECT_EQ(cell(html, "time in steps"), "9s");
  EXPECT_EQ(cell(html, "time in evaluation"), "2m30s");
  EXPECT_EQ(cell(html, "time in checkpoints"), "2s");
  EXPECT_EQ(cell(html, "steps skipped (NaN or Inf)"), "1 logged");
  EXPECT_EQ(cell(html, "memory planned per rank"), "3 MiB");
  EXPECT_EQ(cell(html, "precision"), "bf16");
  EXPECT_EQ(cell(html, "tfm"), "0.1");
  EXPECT_EQ(cell(html, "resumed"), "(none)");
  for (const auto& [reason, state] :
       {std::pair{R"(,"reason":"no_improvement")", "finished: early stop, no improvement"},
        {R"(,"reason":"request")", "stopped on request"},
        {R"(,"reason":"diverged")", "ended: diverged"},
        {"", "finished"}})
    EXPECT_EQ(
        cell(summary({folder.run(kLog + R"({"event":"end","step":3)" + reason + "}\n")}), "state"),
        state);
}

// Parts of a step are drawn at their middle: of four the third, at 62.5 %.
TEST(ReportRun, TheBackwardPassIsMarkedWhereItBegins) {
  const ReportFolder folder;
  const std::string html = memory({folder.run(kLog)}), mark = "<line class=\"mark\" x1=\"";
  const auto at = html.find(mark);
  ASSERT_NE(at, html.npos);
  EXPECT_NEAR(std::stod(html.substr(at + mark.size())), 62.5, 0.1);
}

TEST(ReportRun, NormsOverDecadesAreLogarithmic) {
  const ReportFolder folder;
  const auto drawn = [&](const std::vector<std::string>& norms) {
    std::string lines = kStart;
    for (std::size_t i = 0; i < norms.size(); ++i)
      lines += R"({"event":"step","step":)" + std::to_string(i + 1) + R"(,"loss":1,"grad_norm":)" +
               norms[i] + "}\n";
    const std::string html = optimization({folder.run(lines)});
    return html.substr(html.find("Gradient norm"));
  };
  const std::string wide = drawn({"1000", "30", "0.1"}), narrow = drawn({"3", "2", "1.5"});
  EXPECT_NE(wide.find("norm, logarithmic"), wide.npos);
  EXPECT_EQ(narrow.find("logarithmic"), narrow.npos);
  for (const std::string tick : {"0.1", "1", "10", "100", "1000"})
    EXPECT_NE(wide.find(">" + tick + "</text>"), wide.npos) << tick;
  EXPECT_NE(narrow.find(">0</text>"), narrow.npos) << "from zero on";
}

TEST(ReportRun, MeansAreWithoutTheFirstStep) {
  const ReportFolder folder;
  const Runs runs{folder.run(kLog)};
  const std::string of_phases = phases(runs);
  EXPECT_EQ(cell(of_phases, "forward"), "1 s") << "of 0.5 and 1.5";
  EXPECT_EQ(cell(of_phases, "data"), "500 ms");
  EXPECT_EQ(cell(of_phases, "sum"), "1.5 s");
  EXPECT_NE(speed(runs).find("Matrix products of a rank, in GFLOP/s: 3."), std::string::npos)
      << "6e9 in the mean of 1 and 3 seconds";
  const auto mean = [](std::initializer_list<double> values) {
    Series s;
    for (const double v : values) s.add(static_cast<double>(s.x.size()), v);
    return mean_after_first(s);
  };
  EXPECT_EQ(mean({9}), 9) << "the only one";
  EXPECT_EQ(mean({9, 1, NAN, 2}), 1.5);
  EXPECT_TRUE(std::isnan(mean({})));
  EXPECT_TRUE(std::isnan(mean({9, NAN})));
}

TEST(ReportRun, MemoryAndCollectivesAreAsPlanned) {
  const ReportFolder folder;
  const Runs runs{folder.run(kLog)};
  const std::string of_memory = memory(runs);
  EXPECT_EQ(cell(of_memory, "parameters"), "1 MiB");
  EXPECT_EQ(cell(of_memory, "activations"), "2 MiB");
  EXPECT_EQ(cell(of_memory, "sum"), "3 MiB");
  // The second of four parts, and the third: their middles.
  EXPECT_EQ(cell(of_memory, "mine"), "9</td><td>4 KiB</td><td>37.5 %</td><td>62.5 %");
  const std::string calls = collectives(runs);
  EXPECT_NE(calls.find("<td>data</td><td>all_reduce</td><td>1 KiB</td><td>3</td><td>3 KiB</td>"),
            std::string::npos);
  EXPECT_NE(calls.find("<td>tensor</td><td>all_gather</td><td>4 KiB</td><td>2</td><td>8 KiB</td>"),
            std::string::npos);
  EXPECT_NE(calls.find("mine, data: 3 KiB. mine, tensor: 9 KiB. "), std::string::npos);
  const report::Run alone = folder.run(R"({"event":"start","memory":{"parameters":8}})"
                                       "\n");
  EXPECT_NE(collectives({alone}).find("one rank has no collectives"), std::string::npos);
  EXPECT_EQ(collectives({folder.run("{\"event\":\"start\"}\n")}), "");
}

// What lies after the step of a resume is done again; pauses are no running time.
TEST(ReportRun, AResumeContinuesFromItsStep) {
  const ReportFolder folder;
  const std::string again =
      R"({"event":"start","run":"mine","resumed_step":2,"time":5000,"world":8})"
      "\n";
  const report::Run run =
      folder.run(kLog + again + step_line(3, "7", 1, 5004) + step_line(4, "1", 1, 5005));
  EXPECT_EQ(run.restarts, std::vector<std::int64_t>{2});
  EXPECT_EQ(run.begin, 0);
  EXPECT_EQ(run.last_step, 4);
  EXPECT_EQ(run.world, 8);
  EXPECT_EQ(run.parameters, 0) << "of the last start";
  EXPECT_EQ(run.step("loss").x, (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(run.step("loss").y[2], 7);
  EXPECT_EQ(run.evaluations.at("loss").x, std::vector<double>{2});
  EXPECT_EQ(run.elapsed.y, (std::vector<double>{5, 6, 6 + 4, 6 + 5}));
  EXPECT_EQ(run.dates.y, (std::vector<double>{1005, 1006, 5004, 5005}));
  EXPECT_EQ(cell(summary({run}), "resumed"), "from step 2");
  EXPECT_EQ(run.last("loss"), 1);
  EXPECT_EQ(run.nonfinite, 1);
  const report::Run later = folder.run(again + step_line(3, "7", 1, 5004));
  EXPECT_EQ(later.begin, 2);
  EXPECT_EQ(cell(summary({later}), "tokens trained on"), "100") << "from where the log begins";
  const report::Run thrice = folder.run(kLog + again + step_line(3, "7", 1, 5004) +
                                        R"({"event":"start","resumed_step":1,"time":6000})"
                                        "\n" +
                                        step_line(2, "3", 1, 6001));
  EXPECT_EQ(thrice.restarts, std::vector<std::int64_t>{1}) << "the one at step 2 is undone";
  EXPECT_EQ(thrice.last_step, 2);
  EXPECT_TRUE(thrice.evaluations.at("loss").empty());
  EXPECT_EQ(thrice.elapsed.y, (std::vector<double>{5, 6}));
  const report::Run twice = folder.run(kLog + again + again + step_line(3, "7", 1, 5004));
  EXPECT_EQ(twice.restarts, (std::vector<std::int64_t>{2, 2}));
  const report::Run over = folder.run(kLog + step_line(2, "8", 1, 1300));
  EXPECT_EQ(over.step("loss").x, (std::vector<double>{1, 2})) << "of a start that is not logged";
  EXPECT_EQ(over.step("loss").y, (std::vector<double>{4, 8}));
}

TEST(ReportRun, StandsForStepsThatAreNotLogged) {
  const ReportFolder folder;
  const report::Run run = folder.run(kStart + step_line(10, "4", 2, 1020) +
                                     step_line(20, "3", 1, 1030) + step_line(25, "2", 1, 1035));
  const std::string html = summary({run});
  EXPECT_EQ(cell(html, "tokens trained on"), "about 2.5k");
  EXPECT_EQ(cell(html, "time in steps"), "about 35s");
}

TEST(ReportRun, DamageIsCountedAndNotBelieved) {
  const ReportFolder folder;
  const report::Run run = folder.run(kLog + "{\n\n[1]\n" +
                                     R"({"event":"step","step":"4"})"
                                     "\n" +
                                     R"({"event":"step","step":5,"loss":"x","time":1e12})"
                                     "\n" +
                                     R"({"event":"st)");
  ASSERT_EQ(run.notes.size(), 2u);
  EXPECT_EQ(run.notes[0],
            "line 13, the last one, is incomplete: the run is writing it, or was killed");
  EXPECT_EQ(run.notes[1], "3 damaged lines were skipped, the first one is line 8");
  EXPECT_EQ(run.last_step, 5);
  EXPECT_EQ(run.dates.x.back(), 3) << "no such time";
  EXPECT_TRUE(std::isnan(run.step("loss").y.back()));
  EXPECT_EQ(folder.run(kLog + "{\n").notes,
            std::vector<std::string>{"1 damaged line was skipped, the first one is line 8"});
  EXPECT_THROW(folder.run(""), Error);
  EXPECT_THROW(folder.run("{\"event\":\"step\"}\n"), Error);
  try {
    read_run(folder.path() + "/nowhere");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::input);
  }
}

// A clock that is set back stays where it was.
TEST(ReportRun, TimesNeverRunBackwards) {
  const ReportFolder folder;
  const report::Run run = folder.run(kStart + step_line(1, "4", 1, 1010) +
                                     step_line(2, "4", 1, 1004) + step_line(3, "4", 1, 1012));
  EXPECT_EQ(run.dates.y, (std::vector<double>{1010, 1010, 1012}));
  EXPECT_EQ(run.elapsed.y, (std::vector<double>{10, 10, 12}));
}

TEST(ReportRun, LoadsOfExpertsAreThinnedOut) {
  const ReportFolder folder;
  std::string log = kStart;
  for (int step = 1; step <= 450; ++step)
    log += R"({"event":"step","step":)" + std::to_string(step) +
           R"(,"expert_load":{"layers.10":[1,1],"layers.2":[)" + std::to_string(step) +
           R"(,-1],"none":[]}})"
           "\n";
  const report::Run run = folder.run(log);
  ASSERT_LE(run.expert_loads.size(), 201u);
  ASSERT_GE(run.expert_loads.size(), 100u);
  EXPECT_EQ(run.expert_loads.front().step, 1);
  EXPECT_EQ(run.expert_loads.back().step, 450);
  const double stride = run.expert_loads[1].step - run.expert_loads[0].step;
  for (std::size_t i = 1; i + 1 < run.expert_loads.size(); ++i)
    EXPECT_EQ(run.expert_loads[i].step - run.expert_loads[i - 1].step, stride) << i;
  const ExpertLoads& last = run.expert_loads.back();
  ASSERT_EQ(last.layers.size(), 2u);
  EXPECT_EQ(last.layers[0].first, "layers.2") << "in the model's order";
  EXPECT_EQ(last.layers[0].second, (std::vector<double>{450, 0}));
  const std::string html = experts({run});
  EXPECT_EQ(cell(html, "layers.2"), "2</td><td>450.00</td><td>0.00");
}

TEST(ReportRun, RunsBelowAFolderAreToldApart) {
  const ReportFolder folder;
  folder.write("all/a/metrics.jsonl", kLog);
  folder.write("all/b/c/metrics.jsonl", kLog);
  folder.write("all/d/metrics.jsonl", "{\"event\":\"start\"}\n");
  const Runs runs = read_runs({folder.path() + "/all"});
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[0].name, "mine (" + folder.path() + "/all/a)");
  EXPECT_EQ(runs[1].name, "mine (" + folder.path() + "/all/b/c)");
  EXPECT_EQ(runs[2].name, "d") << "of its directory";
  EXPECT_EQ(label(runs, 2), "C: d");
  const Runs many(60);
  EXPECT_EQ(letter(many, 0), "A");
  EXPECT_EQ(letter(many, 25), "Z");
  EXPECT_EQ(letter(many, 26), "AA");
  EXPECT_EQ(letter(many, 53), "BB");
  EXPECT_EQ(letter(Runs(1), 0), "");
}

TEST(ReportScaling, ReadsResultsOfEveryForm) {
  const ReportFolder folder;
  folder.write("s/a.csv",
               "mode,ranks,tokens_per_second,efficiency,skipped\r\n"
               "strong,4,300,0.75,\n\"strong\",1,100,1,\nweak,2,190,,\nstrong,8,1,,\"no, host\"\n"
               "strong,0,100,,\nstrong,2,0,,\nstrong,2,inf,,\n");
  folder.write("s/b.json",
               R"({"points":[{"scaling":"strong","ranks":4,"tokens_per_second":300.0000001},)"
               R"({"scaling":"strong","axis":"tensor","ranks":2,"tokens_per_second":150,)"
               R"("predicted_tokens_per_second":160,"oversubscribed":true},)"
               R"({"scaling":"strong","axis":"","ranks":2,"tokens_per_second":180}, 7]})");
  const report::Run run = read_run(folder.path() + "/s");
  std::vector<std::tuple<std::string, double, double>> all;
  for (const ScalingPoint& p : run.scaling) all.emplace_back(p.mode, p.ranks, p.tokens_per_second);
  using Point = std::tuple<std::string, double, double>;
  EXPECT_EQ(all, (std::vector<Point>{{"strong", 1, 100},
                                     {"strong", 2, 180},
                                     {"strong", 4, 300},
                                     {"strong tensor", 2, 150},
                                     {"weak", 2, 190}}));
  EXPECT_EQ(run.scaling[2].efficiency, 0.75);
  EXPECT_FALSE(run.scaling[4].efficiency);
  EXPECT_EQ(run.scaling[3].predicted, 160);
  EXPECT_TRUE(run.scaling[3].oversubscribed);
  EXPECT_FALSE(run.scaling[0].oversubscribed);
  ASSERT_EQ(run.notes.size(), 1u);
  EXPECT_NE(run.notes[0].find("a.csv: 3 rows without numbers"), std::string::npos) << run.notes[0];
  EXPECT_NE(scaling({run}).find("from 100 at 1 ranks to 300 at 4. "), std::string::npos);
}

TEST(ReportSeries, ValuesBetweenSteps) {
  Series s;
  EXPECT_TRUE(std::isnan(s.value_at(1)));
  s.add(10, 1), s.add(20, 3), s.add(40, 7);
  EXPECT_EQ(s.value_at(5), 1);
  EXPECT_EQ(s.value_at(10), 1);
  EXPECT_EQ(s.value_at(15), 2);
  EXPECT_EQ(s.value_at(35), 6);
  EXPECT_EQ(s.value_at(50), 7);
  s.cut(20);
  EXPECT_EQ(s.x, (std::vector<double>{10, 20}));
}

TEST(ReportSeries, UnitsOfValues) {
  EXPECT_EQ(text_of(999, Unit::count), "999");
  EXPECT_EQ(text_of(1000, Unit::count), "1k");
  EXPECT_EQ(text_of(-2.4, Unit::count), "-2");
  EXPECT_EQ(text_of(0, Unit::seconds), "0 s");
  EXPECT_EQ(text_of(1, Unit::seconds), "1 s");
  EXPECT_EQ(text_of(119.5, Unit::seconds), "119.5 s");
  EXPECT_EQ(text_of(120, Unit::seconds), "2m00s");
  EXPECT_EQ(text_of(1e-3, Unit::seconds), "1 ms");
  EXPECT_EQ(text_of(9e-4, Unit::seconds), "900 us");
  EXPECT_EQ(text_of(86400, Unit::date), "1970-01-02");
  EXPECT_EQ(text_of(86400 + 60, Unit::date), "00:01");
  EXPECT_EQ(text_of(61, Unit::date), "00:01:01");
  EXPECT_EQ(ticks(0, 86400 * 4, Unit::date)[1], 86400);
  EXPECT_EQ(ticks(0, 119, Unit::seconds)[1], 50) << "decimal below two minutes";
  EXPECT_EQ(ticks(0, 600, Unit::seconds)[1], 120);
  EXPECT_EQ(ticks(0, 6 * 1024, Unit::bytes)[1], 2 * 1024);
  EXPECT_EQ(log_ticks(1, 1e6), (std::vector<double>{1, 10, 100, 1e3, 1e4, 1e5, 1e6}));
  EXPECT_EQ(log_ticks(1, 1e12), (std::vector<double>{1, 100, 1e4, 1e6, 1e8, 1e10, 1e12}));
}

}  // namespace
}  // namespace tfm::report
