#pragma once
// What the ranks of a job must have in common: the build, the instruction set of CPU kernels, and
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

// The version of the running program and the linker's build id; `with_kernels`: also that of its
// CPU kernels.
std::string build_id(bool with_kernels = true);
RankSettings settings_of_rank(const config::Config*);
// The settings of all ranks. gather(text) returns the texts of all ranks.
std::vector<RankSettings> of_all_ranks(const RankSettings& mine, const auto& gather) {
  const auto hosts = gather(mine.host), builds = gather(mine.build),
             instructions = gather(mine.instructions), configs = gather(mine.config);
  std::vector<RankSettings> ranks;
  for (std::size_t r = 0; r < hosts.size(); ++r)
    ranks.push_back({hosts[r], builds[r], instructions[r], configs[r]});
  return ranks;
}

// Describes the first rank whose build, instructions or configuration differ from rank 0's: what
// differs, with both hosts and both values. nullopt if all agree.
std::optional<Error> first_difference(const std::vector<RankSettings>& ranks);

// Collective over the job: throws first_difference(), if any, on every rank.
void check_same_settings(const comm::MpiSession& session, const RankSettings& mine);

}  // namespace tfm::launch
