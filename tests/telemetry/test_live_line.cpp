#include <gtest/gtest.h>

#include <vector>

#include "telemetry/live_line.h"
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

}  // namespace
}  // namespace tfm
