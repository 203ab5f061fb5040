#pragma once
// What the ranks of a job must have in common: the build, the instructions of kernels for CPUs, and
// the effective configuration.
#include <optional>
#include <string>
#include <vector>

#include "comm/mpi.h"
#include "config/config.h"

namespace tfm::launch {

struct RankSettings {
  std::string host;
  std::string build;         // version and build id
  std::string instructions;  // kernels::instructions(); empty where a GPU computes
  std::string config;        // YAML, as dump_config() writes it
};

std::string host_name();
// Of the running program: its version and the linker's build id; that of its kernels for CPUs.
std::string build_id(bool with_kernels = true);
RankSettings settings_of_rank(const config::Config*);
// gather(text): a value of each rank.
std::vector<RankSettings> of_all_ranks(const RankSettings& mine, const auto& gather) {
  const auto hosts = gather(mine.host), builds = gather(mine.build),
             instructions = gather(mine.instructions), configs = gather(mine.config);
  std::vector<RankSettings> ranks;
  for (std::size_t r = 0; r < hosts.size(); ++r)
    ranks.push_back({hosts[r], builds[r], instructions[r], configs[r]});
  return ranks;
}

// The first rank whose build, instructions or configuration are not rank 0's: what differs, with
// both hosts and both values. Empty where all agree.
std::optional<Error> first_difference(const std::vector<RankSettings>& ranks);

// Collective over the job; throws what first_difference() finds, on every rank.
void check_same_settings(const comm::MpiSession& session, const RankSettings& mine);

}  // namespace tfm::launch
