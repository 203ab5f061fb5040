// What `device: auto` is, by what the machines of all ranks have.
#include <gtest/gtest.h>

#include "core/error.h"
#include "device/device.h"
#include "launch/support/device_choice.h"

namespace tfm::launch {
namespace {

using config::DeviceKind;

config::Config config_of(DeviceKind device) {
  config::Config c;
  c.device = device;
  return c;
}

const std::vector<RankGpus> kOfTheirOwn{{"a", 2, 2}, {"a", 2, 2}, {"b", 1, 4}};

void expect_cpu(const DeviceChoice& choice, const std::vector<std::string>& parts) {
  EXPECT_EQ(choice.device, DeviceKind::cpu);
  for (const std::string& part : parts)
    EXPECT_NE(choice.warning.find(part), std::string::npos) << part << " in " << choice.warning;
}

TEST(DeviceChoice, WhatTheConfigurationSaysStays) {
  for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::cuda}) {
    const DeviceChoice choice = choose_device(config_of(device), kOfTheirOwn);
    EXPECT_EQ(choice.device, device);
    EXPECT_EQ(choice.warning, "");
  }
}

// No process has so many addresses; another start would find no more of them.
TEST(DeviceMemory, ThatCannotBeReservedIsAFaultOfTheEnvironment) {
  device::Device cpu = device::Device::cpu(1);
  try {
    cpu.allocate(std::int64_t{1} << 60);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::environment);
    EXPECT_NE(std::string(e.what()).find("train.micro_batch_size"), std::string::npos) << e.what();
  }
}

TEST(DeviceChoice, WithoutGpusTheCpu) {
  const DeviceChoice choice =
      choose_device(config_of(DeviceKind::automatic), {{"a", 2, 0}, {"a", 2, 0}});
  EXPECT_EQ(choice.device, DeviceKind::cpu);
  EXPECT_EQ(choice.warning, "");
}

TEST(DeviceChoice, GpusAreCountedWhereEachRankSeesItsOwnAlone) {
  const auto gpus = [](const std::vector<SeenGpus>& ranks) {
    std::vector<std::tuple<std::string, int, int>> all;
    for (const RankGpus& r : count_gpus(ranks)) all.emplace_back(r.host, r.ranks, r.gpus);
    return all;
  };
  using All = decltype(gpus({}));
  EXPECT_EQ(gpus({{"a", 1, "07"}, {"b", 1, "07"}, {"a", 1, "0a"}}),
            (All{{"a", 2, 2}, {"b", 1, 1}, {"a", 2, 2}}));
  EXPECT_EQ(gpus({{"a", 1, "07"}, {"a", 1, "07"}}), (All{{"a", 2, 1}, {"a", 2, 1}}));
  EXPECT_EQ(gpus({{"a", 4, "07"}, {"a", 4, "0a"}}), (All{{"a", 2, 4}, {"a", 2, 4}}));
  EXPECT_EQ(gpus({{"a", 1, "07"}, {"a", 0, ""}}), (All{{"a", 2, 1}, {"a", 2, 0}}));
  EXPECT_EQ(gpus({{"a", 1, "07", "x"}, {"a", 1, "07", "y"}}), (All{{"a", 1, 1}, {"a", 1, 1}}))
      << "two machines of one name";
  EXPECT_EQ(count_gpus({{"a", 0, "", "x", "no driver"}})[0].why, "no driver");
}

#ifdef TFM_CUDA
TEST(DeviceChoice, AGpuOfItsOwnForEachRank) {
  const DeviceChoice choice = choose_device(config_of(DeviceKind::automatic), kOfTheirOwn);
  EXPECT_EQ(choice.device, DeviceKind::cuda);
  EXPECT_EQ(choice.warning, "");
}

TEST(DeviceChoice, OtherwiseSaysWhyGpusStayIdle) {
  const config::Config c = config_of(DeviceKind::automatic);
  expect_cpu(choose_device(c, {{"a", 2, 2}, {"a", 2, 2}, {"b", 1, 0}}),
             {"2 GPUs stay idle", "host b has no GPU", "device=cpu"});
  expect_cpu(choose_device(c, {{"a", 2, 1}, {"a", 2, 1}}),
             {"1 GPU stays idle", "2 ranks would share 1 GPU", "device=cuda"});
  const std::string why = "the driver supports CUDA 12.8, but CUDA 13.0 is required";
  expect_cpu(
      choose_device(c, {{"a", 1, 0, "", why}}),
      {"which is the CPU here: host a has no GPU that this build can use: " + why, "device=cpu"});
}
#else
TEST(DeviceChoice, ABuildWithoutCudaSaysThatGpusStayIdle) {
  expect_cpu(choose_device(config_of(DeviceKind::automatic), kOfTheirOwn),
             {"6 GPUs stay idle", "TFM_CUDA", "device=cpu"});
}
#endif

}  // namespace
}  // namespace tfm::launch
