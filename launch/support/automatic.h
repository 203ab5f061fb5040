#pragma once
// Resolves `auto` by plan/choose.h for the ranks of a launch.
#include "launch/support/program.h"
#include "plan/choose.h"

namespace tfm::launch {

// The device model of a rank of this launch on the cores of this machine. `memory_bytes`: of all
// ranks of the machine together.
plan::DeviceModel host_model(const Launch& launch, std::int64_t memory_bytes);

// Collective: the device model of a rank of this launch on its device, with the memory of the rank
// that has least. It has no peak on a GPU that no table lists. Error(environment) if the device is
// missing.
plan::DeviceModel device_model(const Launch& launch, const config::Config& config);

// Collective: rank 0 chooses; all ranks put the choice in place of `auto` and resolve the
// configuration. `earlier` is called on rank 0.
plan::Choice choose(const Launch& launch, config::Config& config,
                    const std::function<std::optional<plan::EarlierChoice>()>& earlier = {});

// The overrides of `read` that make `choice`: "section.key=value".
std::vector<std::string> overrides_of(const config::Config& read, const plan::LayoutChoice& choice);

struct PlannedMemory {
  std::int64_t rank = 0;  // bytes of this rank
  std::int64_t host = 0;  // of all ranks of its host
};
// Collective.
PlannedMemory planned_memory(const Launch& launch, const config::Config& config);

// Collective: throws device::OutOfMemory if the plans of ranks on CPUs take more memory than their
// machine has, whose kernel would kill them without a message.
void check_memory(const Launch& launch, const config::Config& config);

}  // namespace tfm::launch
