// What is said about GPUs that a run leaves idle.
#include <gtest/gtest.h>

#include "launch/support/program.h"

namespace tfm::launch {
namespace {

using config::DeviceKind;

TEST(IdleGpus, AreNamedWhereTheDeviceIsLeftToTheProgram) {
  for (const int gpus : {1, 8}) {
    const std::string warning = warning_of_idle_gpus(DeviceKind::automatic, gpus);
    for (const std::string& part : {std::to_string(gpus) + " GPU", std::string("device=cuda"),
                                    std::string("device=cpu"), std::string("idle")})
      EXPECT_NE(warning.find(part), std::string::npos) << part << " is missing in: " << warning;
  }
}

TEST(IdleGpus, AreNotWhereThereAreNoneOrTheDeviceWasChosen) {
  EXPECT_EQ(warning_of_idle_gpus(DeviceKind::automatic, 0), "");
  EXPECT_EQ(warning_of_idle_gpus(DeviceKind::cpu, 8), "");
  EXPECT_EQ(warning_of_idle_gpus(DeviceKind::cuda, 8), "");
}

}  // namespace
}  // namespace tfm::launch
