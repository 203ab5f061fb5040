#pragma once
// What `device: auto` is on the ranks of a launch: a GPU where each of them has one of its own that
// works, with a driver and of an architecture that this build has code for, and where the
// configuration can run on GPUs; otherwise the CPU, on all ranks.
#include "launch/support/program.h"

namespace tfm::launch {

struct RankGpus {  // of the machine of a rank
  std::string host;
  int ranks = 0, gpus = 0;
};
struct SeenGpus {  // by a rank: launchers hide GPUs from it, often all but one
  std::string host;
  int gpus = 0;
  std::string own;  // bus id of the one that it takes
};
std::vector<RankGpus> count_gpus(const std::vector<SeenGpus>& ranks);

struct DeviceChoice {
  config::DeviceKind device = config::DeviceKind::cpu;
  std::string warning;  // where `auto` met GPUs: that they stay idle and why, or that they do not
};
DeviceChoice choose_device(const config::Config& config, const std::vector<RankGpus>& ranks);

std::vector<RankGpus> gpus_of_ranks(const Launch& launch);  // collective

// Collective. Sets config.device where it is `auto`, and binds ranks near their GPUs; rank 0 prints
// the warning.
void choose_device(Launch& launch, config::Config& config);

}  // namespace tfm::launch
