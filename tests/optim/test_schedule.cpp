// Learning rates against values worked out by hand.
#include <gtest/gtest.h>

#include <cmath>

#include "optim/schedule.h"
#include "plan/step_plan.h"

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

TEST(Schedule, FollowsItsEquationsAtTheirEnds) {
  using enum config::ScheduleType;
  const Schedule wave = schedule(config::ScheduleType::cosine);  // from step 4 to 20
  EXPECT_DOUBLE_EQ(wave.at(4), 2);
  EXPECT_DOUBLE_EQ(wave.at(8), 1 + 0.5 * (1 + std::sqrt(0.5)));
  EXPECT_DOUBLE_EQ(wave.at(12), 1.5);
  EXPECT_DOUBLE_EQ(wave.at(20), 1);
  EXPECT_DOUBLE_EQ(wave.at(1000), 1) << "the least, from the last step on";
  EXPECT_DOUBLE_EQ(schedule(linear).at(1000), 1);
  EXPECT_DOUBLE_EQ(schedule(wsd).at(1000), 1);
  EXPECT_DOUBLE_EQ(schedule(config::ScheduleType::constant).at(1000), 2);
  EXPECT_DOUBLE_EQ(schedule(config::ScheduleType::constant).at(3), 1.5);
  for (const auto type : {constant, linear, config::ScheduleType::cosine, inverse_sqrt, wsd}) {
    Schedule s = schedule(type);
    EXPECT_DOUBLE_EQ(s.at(1), 0.5) << "warmup";
    EXPECT_DOUBLE_EQ(s.peak(), 2);
    s.warmup = 0;
    s.min_lr = 0;
    EXPECT_LE(s.at(1), 2);
    EXPECT_GE(s.at(1), 1.8) << "no warmup";
  }
  Schedule root = schedule(inverse_sqrt);
  root.warmup = 0, root.min_lr = 0;
  EXPECT_DOUBLE_EQ(root.at(1), 2);
  EXPECT_DOUBLE_EQ(root.at(16), 0.5);
  Schedule rising = schedule(noam);  // without warmup it only falls
  rising.warmup = 0, rising.min_lr = 0;
  EXPECT_DOUBLE_EQ(rising.at(1), 0.25);
  EXPECT_DOUBLE_EQ(rising.at(16), 0.25 / 4);
  EXPECT_DOUBLE_EQ(rising.peak(), 0.25);
  Schedule brief = schedule(linear);  // as long as its warmup
  brief.total = 4;
  EXPECT_DOUBLE_EQ(brief.at(4), 2);
  EXPECT_DOUBLE_EQ(brief.at(5), 1);
}

TEST(Schedule, OfAConfiguration) {
  const auto of = [](std::vector<std::string> overrides) {
    overrides.insert(overrides.begin(), {"train.steps=100", "optimizer.lr=0.5"});
    return config::parse_config(
        "model: {family: decoder, vocab_size: 8, d_model: 16, n_layers: 1, n_heads: 2}\n"
        "data: {train: {type: tokens, path: none.bin}}\n",
        "test", overrides);
  };
  const Schedule plain = plan::schedule_of(
      of({"schedule.type=cosine", "schedule.min_lr=0.125", "schedule.warmup_steps=7"}));
  EXPECT_EQ(plain.type, config::ScheduleType::cosine);
  EXPECT_EQ(plain.lr, 0.5);
  EXPECT_EQ(plain.min_lr, 0.125);
  EXPECT_EQ(plain.warmup, 7);
  EXPECT_EQ(plain.total, 100);
  EXPECT_EQ(plain.decay, 0);
  EXPECT_EQ(plain.d_model, 16);
  for (const char* type : {"cosine", "linear"}) {
    const Schedule shorter =
        plan::schedule_of(of({std::string("schedule.type=") + type, "schedule.decay_steps=60"}));
    EXPECT_EQ(shorter.total, 60) << "from where on it is the least";
    EXPECT_EQ(shorter.decay, 0);
  }
  const Schedule wsd = plan::schedule_of(of({"schedule.type=wsd", "schedule.decay_steps=30"}));
  EXPECT_EQ(wsd.total, 100);
  EXPECT_EQ(wsd.decay, 30);
  EXPECT_DOUBLE_EQ(wsd.at(85), (0.5 + wsd.min_lr) / 2) << "half of the way down";
  // The rule of Muon divides by the peak, which with noam is not lr.
  config::Config noam =
      of({"schedule.type=noam", "schedule.warmup_steps=4", "optimizer.type=muon"});
  config::resolve_for_ranks(noam, 1);
  const plan::StepPlan p = plan::make_step_plan(noam, comm::single_mesh());
  EXPECT_DOUBLE_EQ(plan::schedule_of(noam).peak(), 0.5 / 4 / 2);
  EXPECT_EQ(plan::optimizer_of(p).grad_clip, noam.optimizer.grad_clip);
  EXPECT_EQ(plan::optimizer_of(p).ema, 0);
}

}  // namespace
}  // namespace tfm
