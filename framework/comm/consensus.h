#pragma once
// Values exchanged by the ranks of a group, and checks that they agree.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/pack.h"

namespace tfm::comm {

// Collective: the values of all ranks of the group, in rank order, on every rank.
std::vector<std::string> gather(Communicator& group, const std::string& text);
template <Packable T>
std::vector<T> gather(Communicator& group, const T& mine) {
  return unpack_each<T>(gather(group, pack(mine)));
}

// Collective: the value of rank 0, on every rank.
std::string broadcast(Communicator& group, const std::string& text);
template <Packable T>
T broadcast(Communicator& group, T value) {
  unpack(broadcast(group, pack(value)), value);
  return value;
}

// What `ready` of rank 0 returns once it is not nullopt, on every rank. `ready` is called again and
// again, and should return within about a second: the others then see that rank 0 lives.
std::string broadcast_when_ready(Communicator& group,
                                 const std::function<std::optional<std::string>()>& ready);

// Throws Error(environment) on every rank, naming the ranks that differ from the most frequent
// value, unless all have the same `hash`. `what` says what is compared, for instance
// "configuration", and `remedy` what to do.
void check_same_on_all_ranks(
    Communicator& group, std::uint64_t hash, const std::string& what,
    const std::string& remedy =
        "start all ranks with the same program, configuration and environment");

}  // namespace tfm::comm
