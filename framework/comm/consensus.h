#pragma once
// Text exchanged by the ranks of a group, and checks that they agree.
#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace tfm::comm {

// Collective: the texts of all ranks of the group, in rank order, on every rank.
std::vector<std::string> gather_strings(Communicator& group, const std::string& text);

// `text` of rank 0, on every rank.
std::string broadcast_string(Communicator& group, const std::string& text);

// Throws Error(environment) on every rank, naming the ranks that differ from the most frequent
// value, unless all have the same `hash`. `what` says what is compared, for instance
// "configuration", and `remedy` what to do.
void check_same_on_all_ranks(
    Communicator& group, std::uint64_t hash, const std::string& what,
    const std::string& remedy =
        "start all ranks with the same program, configuration and environment");

}  // namespace tfm::comm
