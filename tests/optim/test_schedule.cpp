// Learning rates against values worked out by hand.
#include <gtest/gtest.h>

#include "optim/schedule.h"

namespace tfm {
namespace {

using optim::Schedule;

Schedule schedule(config::ScheduleType type) {
  Schedule s;
  s.type = type, s.lr = 2, s.min_lr = 1, s.warmup = 4, s.total = 20, s.decay = 8, s.d_model = 64;
  return s;
}

TEST(Schedule, FollowsItsEquations) {
  const Schedule root = schedule(config::ScheduleType::inverse_sqrt);
  EXPECT_DOUBLE_EQ(root.at(1), 0.5);
  EXPECT_DOUBLE_EQ(root.at(4), 2);
  EXPECT_DOUBLE_EQ(root.at(16), 1);
  EXPECT_DOUBLE_EQ(root.at(64), 1) << "the least, not 0.5";
  Schedule noam = schedule(config::ScheduleType::noam);  // 2 / sqrt(64) = 0.25
  noam.min_lr = 0.05;
  EXPECT_DOUBLE_EQ(noam.at(2), 0.25 * 2 / 8);
  EXPECT_DOUBLE_EQ(noam.at(16), 0.25 / 4);
  EXPECT_DOUBLE_EQ(noam.at(64), 0.05) << "the least, not 0.25 / 8";
  EXPECT_DOUBLE_EQ(noam.peak(), 0.25 / 2);
  EXPECT_DOUBLE_EQ(schedule(config::ScheduleType::cosine).peak(), 2);
  noam.min_lr = 0.1;
  EXPECT_DOUBLE_EQ(noam.at(2), 0.25 * 2 / 8) << "warmup may have less";
  const Schedule wsd = schedule(config::ScheduleType::wsd);
  EXPECT_DOUBLE_EQ(wsd.at(12), 2);
  EXPECT_DOUBLE_EQ(wsd.at(16), 1.5);
  EXPECT_DOUBLE_EQ(wsd.at(20), 1);
  const Schedule linear = schedule(config::ScheduleType::linear);
  EXPECT_DOUBLE_EQ(linear.at(12), 1.5);
}

}  // namespace
}  // namespace tfm
