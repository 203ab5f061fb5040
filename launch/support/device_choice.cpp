#include "launch/support/device_choice.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

#include "core/host.h"
#include "core/strings.h"

namespace tfm::launch {
namespace {

#ifdef TFM_CUDA
constexpr bool kCuda = true;
#else
constexpr bool kCuda = false;
#endif

// Why not all ranks compute on GPUs; empty where they can.
std::string obstacle(const std::vector<RankGpus>& ranks) {
  if (!kCuda) return "this build has no CUDA support; one with -DTFM_CUDA=ON trains on GPUs";
  for (const RankGpus& r : ranks) {
    if (r.gpus == 0)
      return "host " + r.host + " has no GPU that this build can use" +
             (r.why.empty() ? "" : ": " + r.why);
    if (r.gpus < r.ranks)
      return "on host " + r.host + " " + counted(r.ranks, "rank") + " would share " +
             counted(r.gpus, "GPU") + "; start as many ranks as GPUs, or set device=cuda";
  }
  return "";
}

}  // namespace

DeviceChoice choose_device(const config::Config& config, const std::vector<RankGpus>& ranks) {
  if (config.device != config::DeviceKind::automatic) return {config.device, ""};
  std::map<std::string, int> idle;  // by machine
  for (const RankGpus& r : ranks)
    if (r.gpus > 0) idle[r.host + ' ' + r.machine] = r.gpus;
  const std::string why = obstacle(ranks), end = "; device=cpu leaves this warning out";
  if (idle.empty()) {
    if (std::ranges::all_of(ranks, &std::string::empty, &RankGpus::why)) return {};
    return {config::DeviceKind::cpu, "device is auto, which is the CPU here: " + why + end};
  }
  if (why.empty()) return {config::DeviceKind::cuda, ""};
  int gpus = 0;
  for (const auto& [host, n] : idle) gpus += n;
  return {config::DeviceKind::cpu, "device is auto, which is the CPU here, and " +
                                       counted(gpus, "GPU") + (gpus == 1 ? " stays" : " stay") +
                                       " idle: " + why + end};
}

std::vector<RankGpus> count_gpus(const std::vector<SeenGpus>& ranks) {
  std::map<std::string, std::pair<RankGpus, std::set<std::string>>> hosts;
  for (const SeenGpus& r : ranks) {
    auto& [all, own] = hosts[r.host + ' ' + r.machine];
    if (!r.own.empty()) own.insert(r.own);
    all.host = r.host, all.machine = r.machine, ++all.ranks;
    all.gpus = std::max({all.gpus, r.gpus, static_cast<int>(own.size())});
  }
  std::vector<RankGpus> counted;
  for (const SeenGpus& r : ranks) {
    counted.push_back(hosts[r.host + ' ' + r.machine].first);
    counted.back().why = r.why;
    if (r.gpus == 0) counted.back().gpus = 0;
  }
  return counted;
}

std::vector<RankGpus> gpus_of_ranks(const Launch& launch) {
  std::vector<SeenGpus> ranks;
  for (const std::string& bytes : launch.gather(comm::pack(
           host_name(), device::Device::gpus(), device::Device::unique_id(launch.local_rank()),
           machine_id(), device::Device::why_no_gpu()))) {
    SeenGpus& r = ranks.emplace_back();
    comm::unpack(bytes, r.host, r.gpus, r.own, r.machine, r.why);
  }
  return count_gpus(ranks);
}

void choose_device(Launch& launch, config::Config& config) {
  const DeviceChoice choice = choose_device(config, gpus_of_ranks(launch));
  if (!choice.warning.empty() && rank_of_launch() == 0)
    std::fprintf(stderr, "warning: %s\n", choice.warning.c_str());
  config.device = choice.device;
  if (config.device == config::DeviceKind::cuda) launch.take_cores_near_gpus();
}

}  // namespace tfm::launch
