// What measurements come to: rates from times, shares of cores, networks from rings.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "launch/bench/bench.h"
#include "launch/bench/peak.h"
#include "launch/bench/rates.h"
#include "launch/bench/scaling.h"
#include "launch/doctor/findings.h"
#include "support/data_files.h"

namespace tfm::launch {
namespace {

TEST(Bench, ThreadsShareTheCoresThatThereAre) {
  EXPECT_EQ(share_of_cores(8, 2, 4), 1);
  EXPECT_EQ(share_of_cores(8, 1, 4), 1) << "not more than what was measured";
  EXPECT_EQ(share_of_cores(8, 4, 4), 0.5);
  EXPECT_EQ(share_of_cores(2, 2, 4), 0.25);
  EXPECT_EQ(share_of_cores(1, 1, 3), 1.0 / 3);
}

TEST(Bench, APeakIsMeasuredOnTheRanksThreads) {
  Launch launch(false);
  launch.cores.threads = 1;
  launch.cores.together = 1;
  config::Config c;
  c.device = config::DeviceKind::cpu;
  train::Machine one;
  set_peak(launch, c, one);
  EXPECT_GT(one.peak_flops, 1e8);
  EXPECT_LT(one.peak_flops, 1e13) << "FLOP/s of one core";
  EXPECT_NE(one.peak_from.find("in fp32 on 1 rank of 1 thread"), std::string::npos)
      << one.peak_from;
  ASSERT_EQ(one.notes.size(), 1u);
  char tera[32];
  std::snprintf(tera, sizeof tera, "%.3g TFLOP/s", one.peak_flops * 1e-12);
  EXPECT_NE(one.notes[0].find(tera), std::string::npos) << one.notes[0];
}

TEST(Bench, AProductHasTwoFlopsAnElementOfItsCube) {
  device::Device device = device::Device::cpu(1);
  int calls = 0;
  const double rate = product_rate(device, DType::f32, 8, [&](const auto& product) {
    product();
    ++calls;
    return 0.25;
  });
  EXPECT_EQ(calls, 1);
  EXPECT_DOUBLE_EQ(rate, 2 * 8 * 8 * 8 / 0.25);
}

// Times (1 + half / size) / rate.
TEST(Bench, RatesGrowTowardsThatOfEndlessSizes) {
  const auto at = [](double rate, double half, double size) { return rate / (1 + half / size); };
  for (const double half : {0.0, 100.0, 4000.0}) {
    const Growth g = growth(512, at(3e9, half, 512), 2048, at(3e9, half, 2048));
    EXPECT_NEAR(g.rate, 3e9, 3);
    EXPECT_NEAR(g.half, half, 1e-3);
  }
  const Growth falling = growth(512, 5e9, 2048, 4e9);
  EXPECT_EQ(falling.rate, 5e9);
  EXPECT_EQ(falling.half, 0);
  // Four times the rate at four times the size has no limit.
  const Growth steep = growth(512, 1e9, 2048, 5e9);
  EXPECT_EQ(steep.rate, 5e9);
  EXPECT_EQ(steep.half, 0);
}

TEST(Bench, TheBestOfSamplesOfTwentyMilliseconds) {
  std::vector<int> asked;
  // A warm-up of 1 s, then 1 ms a run, and the fourth sample undisturbed.
  const double seconds = best_of([&](int times) {
    asked.push_back(times);
    if (asked.size() == 1) return 1.0;
    return times * (asked.size() == 6 ? 0.0005 : 0.001);
  });
  EXPECT_EQ(asked, (std::vector<int>{1, 1, 20, 20, 20, 20, 20}));
  EXPECT_DOUBLE_EQ(seconds, 0.0005);
  int most = 0, least = 1 << 30;
  best_of([&](int times) { return most = std::max(most, times), 0.0; });
  best_of([&](int times) { return least = std::min(least, times), 7.0 * times; }, 2);
  EXPECT_EQ(most, 10000);
  EXPECT_EQ(least, 1);
}

TEST(Bench, MediansOfEvenNumbersAreMeans) {
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({9, 1}), 5);
  EXPECT_EQ(median({9, 1, 2}), 2);
  EXPECT_EQ(median({9, 1, 2, 4}), 3);
}

// A ring of n ranks takes (n - 1) hops, and n - 1 parts of bytes / n.
TEST(Bench, ANetworkIsReadFromTheSmallestAndTheLargestRing) {
  const double latency = 5e-6, bandwidth = 2e9;
  const int n = 4;
  const auto ring = [&](double bytes) { return (n - 1) * (latency + bytes / n / bandwidth); };
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  using enum comm::Collective;
  for (const comm::Collective op : {all_reduce_sum, reduce_scatter, all_gather})
    for (const double bytes : {65536.0, 1e6, 64e6}) {
      const double seconds = op == all_reduce_sum ? 99
                             : bytes == 1e6       ? 77  // of which nothing is read
                                                  : ring(bytes);
      results.push_back({{"op", comm::name_of(op)}, {"bytes", bytes}, {"seconds", seconds}});
    }
  const plan::DeviceModel::Link found = network_of(results, n);
  EXPECT_NEAR(found.latency, latency, 1e-12);
  EXPECT_NEAR(found.bandwidth, bandwidth, 1);
  test::expect_error(ExitCode::usage, {"two ranks"}, [&] { network_of(results, 1); });
  test::expect_error(ExitCode::usage, {"two sizes"}, [&] {
    network_of({{{"op", "all_gather"}, {"bytes", 64}, {"seconds", 1}}}, 2);
  });
  // So short a time that nothing is left for hops.
  const plan::DeviceModel::Link busy =
      network_of({{{"op", "all_gather"}, {"bytes", 1e6}, {"seconds", 1e-9}},
                  {{"op", "all_gather"}, {"bytes", 2e6}, {"seconds", 1}}},
                 2);
  EXPECT_EQ(busy.latency, 0);
}

TEST(Bench, RandomDataHasTheShareOfLabelsOfItsObjective) {
  config::Config c;
  c.model.vocab_size = 50;
  c.data.train.type = "mlm";
  c.data.train.mask_probability = 0.25;
  const RandomData data(c, 0, 4);
  std::vector<std::int32_t> ids(4000), labels(4000), mask(4000, 7), answers(4, 7);
  data.fill(0, 0, 4,
            {{Field::ids, ids},
             {Field::labels, labels},
             {Field::mask, mask},
             {Field::sentence_labels, answers}});
  std::set<std::int32_t> seen(ids.begin(), ids.end());
  EXPECT_EQ(seen.size(), 50u);
  EXPECT_EQ(*seen.begin(), 0);
  EXPECT_EQ(*seen.rbegin(), 49);
  EXPECT_NEAR(static_cast<double>(std::ranges::count(labels, -1)), 4000 * 0.75, 150);
  EXPECT_EQ(std::ranges::count(mask, 0), 4000) << "all of one document, and real";
  for (const std::int32_t answer : answers) EXPECT_TRUE(answer == 0 || answer == 1) << answer;
}

TEST(Findings, TheExitCodeIsOfTheWorstProblem) {
  const Launch launch(false);
  Findings findings(launch);
  findings.ok("cores", "are there");
  findings.warning("clock", "is late", "set it");
  EXPECT_EQ(findings.exit_code(), 0);
  EXPECT_FALSE(findings.of_ranks("data", {}));
  EXPECT_EQ(findings.exit_code(), 0);
  EXPECT_TRUE(findings.of_ranks("data", Error(ExitCode::input, "x.bin: is missing"), "make it"));
  EXPECT_EQ(findings.exit_code(), 3);
  EXPECT_TRUE(findings.of_ranks("device", Error(ExitCode::usage, "no such device")));
  EXPECT_EQ(findings.exit_code(), 4) << "whatever the error was";
  Findings other(launch);
  other.problem("memory", "too little", "add some");
  EXPECT_EQ(other.exit_code(), 4);
  const auto json = findings.json();
  EXPECT_EQ(json["exit_code"], 4);
  EXPECT_EQ(json["ranks"], 1);
  ASSERT_EQ(json["findings"].size(), 4u);
  EXPECT_EQ(
      json["findings"][1],
      (nlohmann::ordered_json{
          {"severity", "warning"}, {"check", "clock"}, {"text", "is late"}, {"remedy", "set it"}}));
  EXPECT_EQ(json["findings"][2]["severity"], "problem");
}

nlohmann::ordered_json scaling_point(int ranks, double rate, double least, double most,
                                     double predicted, bool oversubscribed) {
  return {{"mode", "strong"},
          {"axis", nullptr},
          {"ranks", ranks},
          {"step_seconds", 0.0125},
          {"tokens_per_second", rate},
          {"tokens_per_second_min", least},
          {"tokens_per_second_max", most},
          {"efficiency", ranks == 1 ? nlohmann::ordered_json() : nlohmann::ordered_json(0.75)},
          {"predicted_tokens_per_second", predicted},
          {"oversubscribed", oversubscribed},
          {"skipped", nullptr}};
}

nlohmann::ordered_json scaling_results(double scale = 1) {
  nlohmann::ordered_json skipped = scaling_point(8, 0, 0, 0, 0, false);
  skipped["skipped"] = "8 ranks, \"too many\"";
  return {{"mode", "strong"},
          {"configuration", "a&b.yaml"},
          {"repeats", 2},
          {"points",
           {scaling_point(1, 100 * scale, 90 * scale, 110 * scale, 120 * scale, false),
            scaling_point(4, 300 * scale, 280 * scale, 320 * scale, 380 * scale, true), skipped}}};
}

// Axes from 0 to 4 ranks on 80 to 700, and from 0 to 400 tokens/s, which is ideal, on 350 to 50.
TEST(Bench, ThePictureOfAScalingHasItsPointsInPlace) {
  const test::TemporaryFolder folder;
  nlohmann::ordered_json results = scaling_results();
  write_scaling_svg(folder / "a.svg", results);
  const std::string svg = test::get(folder / "a.svg");
  for (const char* part :
       {"viewBox='0 0 720 469'", ">strong scaling of a&amp;b.yaml<", "M80 350L700 50",
        "d='M235 275L700 125'", "d='M235 260L700 65'", "M235 282.5L235 267.5", "M700 140L700 110",
        "cx='235' cy='275' r='4' fill='#1f77b4'", "cx='700' cy='125' r='4' fill='white'",
        ">strong scaling, measured<", ">strong scaling, predicted<", "ideal: proportional",
        "oversubscribed: more", "bar: least and most", "<text x='235' y='368'", ">1</text>",
        "<text x='72' y='279' text-anchor='end' fill='black'>100<", ">400<"})
    EXPECT_NE(svg.find(part), std::string::npos) << part << "\n" << svg;
  for (const char* part : {">50<", ">8</text>", "d62728"})
    EXPECT_EQ(svg.find(part), std::string::npos) << part;
  results["repeats"] = 1;
  results["points"][1]["oversubscribed"] = false;
  results["points"][1]["axis"] = "tensor";
  write_scaling_svg(folder / "b.svg", results);
  const std::string other = test::get(folder / "b.svg");
  for (const char* part : {"bar: ", "oversubscribed"})
    EXPECT_EQ(other.find(part), std::string::npos) << part;
  for (const char* part : {">strong tensor scaling, measured<", "fill='#d62728'"})
    EXPECT_NE(other.find(part), std::string::npos) << part;
  write_scaling_svg(folder / "c.svg", scaling_results(6000));
  const std::string millions = test::get(folder / "c.svg");  // up to 2.4 of them
  for (const char* part : {">500k<", ">1M<", ">1.5M<", ">2M<"})
    EXPECT_NE(millions.find(part), std::string::npos) << part;
  write_scaling_svg(folder / "d.svg", scaling_results(1.5));
  const std::string six = test::get(folder / "d.svg");  // steps up to 600
  for (const char* part : {">100<", ">500<", ">600<"})
    EXPECT_NE(six.find(part), std::string::npos) << part;
  results["points"] = nlohmann::ordered_json::array();
  write_scaling_svg(folder / "none.svg", results);
  EXPECT_NE(test::get(folder / "none.svg").find(">1<"), std::string::npos);
}

TEST(Bench, ScalingIsPrintedAndWrittenWithItsUnits) {
  const auto points = scaling_results()["points"];
  testing::internal::CaptureStdout();
  for (const auto& p : points) print_scaling_point(p);
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "strong                1      12.50        100.0         90.0        110.0            "
            "       120.0\n"
            "strong                4      12.50        300.0        280.0        320.0      75.0% "
            "       380.0  oversubscribed: more threads than cores\n"
            "strong                8 skipped: 8 ranks, \"too many\"\n");
  const test::TemporaryFolder folder;
  write_scaling_csv(folder / "a.csv", points);
  EXPECT_EQ(test::get(folder / "a.csv"),
            "mode,axis,ranks,step_seconds,tokens_per_second,tokens_per_second_min,"
            "tokens_per_second_max,efficiency,predicted_tokens_per_second,oversubscribed,skipped\n"
            "strong,,1,0.0125,100.0,90.0,110.0,,120.0,false,\n"
            "strong,,4,0.0125,300.0,280.0,320.0,0.75,380.0,true,\n"
            "strong,,8,0.0125,0.0,0.0,0.0,0.75,0.0,false,\"8 ranks, \"\"too many\"\"\"\n");
}

}  // namespace
}  // namespace tfm::launch
