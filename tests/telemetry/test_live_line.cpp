#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "io/protobuf.h"
#include "support/data_files.h"
#include "telemetry/event_file.h"
#include "telemetry/live_line.h"
#include "telemetry/metrics_log.h"
#include "telemetry/progress.h"

namespace tfm {
namespace {

TEST(Tasks, TheOuterOneIsWatchedUntilItIsOver) {
  std::vector<std::string> seen;
  watch_tasks([&](const TaskState& t) {
    seen.push_back(t.what + " " + std::to_string(t.done) + "/" + std::to_string(t.total) +
                   (t.bytes ? " bytes" : "") + (t.over ? " over" : ""));
  });
  {
    Task outer("outer", 10, Task::Unit::bytes);
    outer.add(4);
    {
      Task inner("inner", 3);
      inner.add(3);
    }
    outer.add(5);
  }
  { Task next("next", 0); }
  watch_tasks({});
  { Task nobody("nobody sees this", 1); }
  EXPECT_EQ(seen, (std::vector<std::string>{"outer 4/10 bytes", "outer 9/10 bytes",
                                            "outer 9/10 bytes over", "next 0/0 over"}));
}

TEST(Tasks, TextHasRateAndTimeLeft) {
  const std::string what = "verifying step-00000500";
  EXPECT_EQ(telemetry::task_text({what, 512 << 20, std::int64_t{2} << 30, true, 4}),
            "verifying step-00000500 25.0% | 512.0 MiB of 2.0 GiB | 128.0 MiB/s | eta 12s");
  EXPECT_EQ(telemetry::task_text({what, 0, 20, false, 0}),
            "verifying step-00000500 0.0% | 0 of 20");
  EXPECT_EQ(telemetry::task_text({what, 30, 0, false, 2}), "verifying step-00000500 | 30 | 15/s");
}

TEST(ProgressBar, FillsFromTheFirstToTheLastStep) {
  telemetry::ProgressSample s{
      .step = 30, .steps = 60, .loss = 3.21451, .tokens_per_second = 412300, .seconds_left = 15};
  EXPECT_EQ(telemetry::step_bar(s),
            "[##########----------] 30/60 | loss 3.2145 | 412.3k tok/s | eta 15s");
  s.step = 60;
  EXPECT_TRUE(telemetry::step_bar(s).starts_with("[####################] 60/60"));
}

TEST(ProgressTexts, HaveTheirUnits) {
  using namespace telemetry;
  const auto line = [](double seconds) {
    const std::string text = step_line({.step = 1, .steps = 2, .step_seconds = seconds});
    const auto end = text.rfind(" | eta"), begin = text.rfind(" | ", end - 1) + 3;
    return text.substr(begin, end - begin);
  };
  for (const auto& [seconds, text] :
       std::vector<std::pair<double, const char*>>{{0.001234, "1.23 ms"},
                                                   {0.00999, "9.99 ms"},
                                                   {0.01, "10.0 ms"},
                                                   {0.0256, "25.6 ms"},
                                                   {0.1, "100 ms"},
                                                   {0.318, "318 ms"},
                                                   {9.5, "9500 ms"},
                                                   {10, "10.0 s"},
                                                   {75.25, "75.2 s"}})
    EXPECT_EQ(line(seconds), text);
  for (const auto& [value, text] : std::vector<std::pair<double, const char*>>{{0, "0"},
                                                                               {1, "1"},
                                                                               {999.94, "1000"},
                                                                               {1500, "1.5k"},
                                                                               {999949, "999.9k"},
                                                                               {999951, "1.0M"},
                                                                               {2.5e9, "2.5G"},
                                                                               {3e12, "3.0T"},
                                                                               {4e15, "4000.0T"}})
    EXPECT_EQ(count_text(value), text) << value;
  for (const auto& [value, text] :
       std::vector<std::pair<double, const char*>>{{0, "0 B"},
                                                   {1023, "1023 B"},
                                                   {1024, "1.0 KiB"},
                                                   {1536, "1.5 KiB"},
                                                   {1 << 20, "1.0 MiB"},
                                                   {3.5 * (1 << 30), "3.5 GiB"},
                                                   {0x1p50, "1024.0 TiB"}})
    EXPECT_EQ(bytes_text(value), text) << value;
  for (const auto& [seconds, text] : std::vector<std::pair<double, const char*>>{{0, "0s"},
                                                                                 {0.4, "0s"},
                                                                                 {59.4, "59s"},
                                                                                 {59.6, "1m00s"},
                                                                                 {60, "1m00s"},
                                                                                 {3599, "59m59s"},
                                                                                 {3600, "1h00m"},
                                                                                 {86399, "23h59m"},
                                                                                 {86400, "1d00h"},
                                                                                 {90000, "1d01h"},
                                                                                 {-1, "n/a"},
                                                                                 {1e10, "n/a"}})
    EXPECT_EQ(duration_text(seconds), text) << seconds;
  EXPECT_EQ(duration_text(std::nan("")), "n/a");
}

TEST(ProgressTexts, OfNoStepsAndOfMoreThanAll) {
  using namespace telemetry;
  EXPECT_TRUE(step_line({.step = 0, .steps = 0}).starts_with("step 0/0 0.0% |"));
  EXPECT_TRUE(step_bar({.step = 0, .steps = 0}).starts_with("[--------------------] 0/0"));
  EXPECT_TRUE(step_bar({.step = 1, .steps = 21}).starts_with("[--------------------] 1/21"));
  EXPECT_TRUE(step_bar({.step = 20, .steps = 21}).starts_with("[###################-] 20/21"));
  EXPECT_TRUE(step_bar({.step = 30, .steps = 20}).starts_with("[####################] 30/20"));
  EXPECT_EQ(task_text({"x", 4, 3, false, 2}), "x 133.3% | 4 of 3 | 2/s") << "no time is left";
  EXPECT_EQ(task_text({"x", 3, 3, false, 2}), "x 100.0% | 3 of 3 | 2/s | eta 0s");
  EXPECT_EQ(task_text({"x", 0, 3, true, 5}), "x 0.0% | 0 B of 3 B");
}

// Frames of TensorBoard, whose records are TFRecord's.
std::vector<std::string> records_of(const std::string& path) {
  const auto crc = [](std::string_view bytes) {  // Castagnoli's, bit by bit, and masked
    std::uint32_t sum = ~0u;
    for (const unsigned char c : bytes) {
      sum ^= c;
      for (int i = 0; i < 8; ++i) sum = sum & 1 ? sum >> 1 ^ 0x82F63B78u : sum >> 1;
    }
    sum = ~sum;
    return (sum >> 15 | sum << 17) + 0xA282EAD8u;
  };
  const std::string all = test::get(path);
  std::vector<std::string> records;
  for (std::size_t at = 0; at + 16 <= all.size();) {
    std::uint64_t size = 0;
    std::uint32_t sum = 0, of_body = 0;
    std::memcpy(&size, all.data() + at, 8);
    std::memcpy(&sum, all.data() + at + 8, 4);
    EXPECT_EQ(sum, crc(std::string_view(all).substr(at, 8)));
    records.push_back(all.substr(at + 12, size));
    std::memcpy(&of_body, all.data() + at + 12 + size, 4);
    EXPECT_EQ(of_body, crc(records.back()));
    at += 16 + size;
  }
  return records;
}

TEST(EventFiles, HaveFramesOfEventsAndNamesInOrder) {
  const test::TemporaryFolder folder;
  std::string first;
  {
    telemetry::EventFile file(folder / "deep/events", 3);
    first = file.path();
    const std::vector<telemetry::Scalar> scalars{{"train/loss", 2.5}, {"train/lr", 1e-3}};
    EXPECT_EQ(file.add(7, scalars), "");
  }
  const std::vector<std::string> records = records_of(first);
  ASSERT_EQ(records.size(), 3u);  // version, start, scalars
  std::map<std::string, float> found;
  std::vector<std::uint64_t> steps;
  for (const std::string& record : records) {
    io::ProtobufReader event(record, "");
    while (event.next()) {
      if (event.field() == 2) steps.push_back(event.number());
      if (event.field() != 5) continue;
      io::ProtobufReader summary(event.bytes(), "");
      while (summary.next()) {
        io::ProtobufReader value(summary.bytes(), "");
        std::string tag;
        while (value.next())
          value.field() == 1 ? void(tag = value.bytes()) : void(found[tag] = value.real());
      }
    }
  }
  EXPECT_EQ(steps, (std::vector<std::uint64_t>{3, 7}));
  EXPECT_EQ(found, (std::map<std::string, float>{{"train/loss", 2.5f}, {"train/lr", 1e-3f}}));
  std::string last = first;
  for (int i = 0; i < 3; ++i) {  // within a second
    const telemetry::EventFile next(folder / "deep/events", 8);
    EXPECT_GT(next.path(), last);
    last = next.path();
  }
  test::put(folder / "file", "");
  test::expect_error(ExitCode::retryable, {"cannot be created"},
                     [&] { telemetry::EventFile(folder / "file/x", 1); });
}

TEST(MetricsFiles, AreToldByTheirLines) {
  const test::TemporaryFolder folder;
  const auto told = [&](const std::string& text) {
    return telemetry::is_metrics_file(test::put(folder / "m", text));
  };
  EXPECT_TRUE(told("{\"event\":\"start\",\"con"));
  for (const char* event : {"start", "step", "eval", "checkpoint", "end"})
    EXPECT_TRUE(told("{\"step\":1,\"event\":\"" + std::string(event) + "\"}\n")) << event;
  EXPECT_TRUE(told("cut line\n{\"step\":1,\"event\":\"step\"}\n"));
  for (const char* other : {"", "text\n", "{\"event\":\"login\"}\n", "{\"event\":1}\n",
                            "{\"step\":1,\"event\":\"step\"}", "[\"event\"]\n"})
    EXPECT_FALSE(told(other)) << other;
}

}  // namespace
}  // namespace tfm
