#pragma once
// What the ranks of a job must have in common: the build and the effective configuration.
#include <optional>
#include <string>
#include <vector>

#include "comm/mpi.h"

namespace tfm::launch {

struct RankSettings {
  std::string host;
  std::string build;   // version and build id
  std::string config;  // YAML, as dump_config() writes it
};

std::string host_name();
std::string build_id();  // of the running program: its version and the linker's build id

// The first rank whose build or configuration is not rank 0's: what differs, with both hosts and
// both values. Empty where all agree.
std::optional<Error> first_difference(const std::vector<RankSettings>& ranks);

// Collective over the job; throws what first_difference() finds, on every rank.
void check_same_settings(const comm::MpiSession& session, const RankSettings& mine);

}  // namespace tfm::launch
