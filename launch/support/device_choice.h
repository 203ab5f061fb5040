#pragma once
// Resolves `device: auto` for the ranks of a launch: a GPU if each of them has a working one of its
// own, with a driver and of an architecture that this build has code for; otherwise the CPU, on all
// ranks.
#include "launch/support/program.h"

namespace tfm::launch {

struct RankGpus {  // a rank's machine
  std::string host;
  int ranks = 0, gpus = 0;
  std::string machine;  // distinguishes hosts of the same name
  std::string why;      // Device::why_no_gpu()
};
// What one rank sees: launchers hide GPUs from it, often all but one.
struct SeenGpus {
  std::string host;
  int gpus = 0;
  std::string own;      // unique id of the GPU that it takes
  std::string machine;  // distinguishes hosts of the same name
  std::string why;      // Device::why_no_gpu()
};
std::vector<RankGpus> count_gpus(const std::vector<SeenGpus>& ranks);

struct DeviceChoice {
  config::DeviceKind device = config::DeviceKind::cpu;
  // Set if `auto` found GPUs: that they are used, or that they stay idle and why.
  std::string warning;
};
DeviceChoice choose_device(const config::Config& config, const std::vector<RankGpus>& ranks);

std::vector<RankGpus> gpus_of_ranks(const Launch& launch);  // collective

// Collective. Resolves config.device if it is `auto`, and binds ranks near their GPUs; rank 0
// prints the warning.
void choose_device(Launch& launch, config::Config& config);

}  // namespace tfm::launch
