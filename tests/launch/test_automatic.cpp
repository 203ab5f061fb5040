// What is chosen and checked for the ranks of a launch.
#include <gtest/gtest.h>

#include <fstream>

#include "device/memory.h"
#include "launch/support/automatic.h"
#include "launch/support/control_group.h"
#include "plan/step_plan.h"
#include "support/data_files.h"

namespace tfm::launch {
namespace {

config::Config automatic_config(const std::vector<std::string>& overrides = {}) {
  return config::parse_config(
      "model: {family: decoder, vocab_size: 64, d_model: 16, n_layers: 2, n_heads: 2}\n"
      "train: {global_batch_size: 8, seq_len: 16}\n"
      "data: {train: {type: tokens, path: none.bin}}\n"
      "device: cpu\n",
      "test.yaml", overrides);
}

TEST(Automatic, APlanOfOneRankIsThatOfItsHost) {
  const Launch launch(false);
  config::Config c = automatic_config({"train.micro_batch_size=2"});
  config::resolve_for_ranks(c, 1);
  const PlannedMemory planned = planned_memory(launch, c);
  EXPECT_EQ(planned.rank, plan::make_step_plan(c, comm::single_mesh()).memory.total());
  EXPECT_EQ(planned.host, planned.rank);
  check_memory(launch, c);
}

TEST(Automatic, WhatIsMoreThanTheHostHasIsRefused) {
  const Launch launch(false);
  // 4 bytes of a parameter, a gradient and two moments each: 16 bytes of 2^40 parameters or more.
  config::Config c = automatic_config(
      {"model.vocab_size=1073741824", "model.d_model=1024", "train.micro_batch_size=1"});
  config::resolve_for_ranks(c, 1);
  try {
    check_memory(launch, c);
    ADD_FAILURE() << "16 TiB fit";
  } catch (const device::OutOfMemory& e) {
    EXPECT_EQ(e.available_bytes, host_memory()) << "of one rank";
    EXPECT_NE(std::string(e.what()).find(" and it has " + std::to_string(host_memory())),
              std::string::npos)
        << e.what();
  }
  c.device = config::DeviceKind::cuda;  // whose memory the device itself checks
  check_memory(launch, c);
}

TEST(Automatic, ACpuIsDescribedByItsRanksShare) {
  Launch launch(false);
  launch.cores.together = 4, launch.cores.threads = 2;
  const config::Config c = automatic_config();
  const plan::DeviceModel model = device_model(launch, c), core = plan::reference_core();
  EXPECT_EQ(model.memory_bytes, host_memory());
  const double one = plan::cpu_model(core, 1 << 30, 4, 1, 1).wide.peak;
  EXPECT_GT(model.wide.peak, 1.5 * one) << "two threads";
  EXPECT_LE(model.wide.peak, 2 * one);
  launch.cores.together = 1;
  EXPECT_LE(device_model(launch, c).wide.peak, one) << "that take turns";
}

TEST(Automatic, AChoiceIsPutInPlaceAndAnEarlierOneKept) {
  const Launch launch(false);
  config::Config c = automatic_config({"recompute=auto"});
  const config::Config read = c;
  const plan::Choice choice = choose(launch, c);
  EXPECT_EQ(c.train.micro_batch(), choice.layout.micro_batch());
  EXPECT_GT(c.train.micro_batch(), 0);
  EXPECT_EQ(8 % c.train.micro_batch(), 0);
  EXPECT_NE(c.recompute, config::Recompute::automatic);
  EXPECT_EQ(c.parallel.data, 1);
  EXPECT_NE(choice.micro_batch_text.find("auto"), std::string::npos);
  config::Config resumed = read,
                 before = automatic_config({"train.micro_batch_size=1", "recompute=full"});
  config::resolve_for_ranks(before, 1);
  choose(launch, resumed, [&] {
    return std::optional(plan::EarlierChoice{"ck/step-00000001", plan::LayoutChoice::of(before)});
  });
  EXPECT_EQ(resumed.train.micro_batch(), 1);
  EXPECT_EQ(resumed.recompute, config::Recompute::full);
  const std::vector<std::string> overrides = overrides_of(read, plan::LayoutChoice::of(before));
  EXPECT_EQ(std::ranges::count(overrides, "train.micro_batch_size=1"), 1);
  EXPECT_EQ(std::ranges::count(overrides, "recompute=full"), 1);
}

TEST(WriteText, IsWholeOrAnErrorToRetry) {
  const test::TemporaryFolder folder;
  write_text(folder / "a", "text");
  EXPECT_EQ(test::get(folder / "a"), "text");
  write_text(folder / "a", "");
  EXPECT_EQ(test::get(folder / "a"), "");
  for (const std::string& path : {std::string("/dev/full"), folder / "no/a"})
    test::expect_error(ExitCode::retryable, {path, "cannot be written"},
                       [&] { write_text(path, "text"); });
}

}  // namespace
}  // namespace tfm::launch
