#pragma once
// The choices of plan/choose.h for the ranks of a launch.
#include "launch/support/program.h"
#include "plan/choose.h"

namespace tfm::launch {

// A rank of this launch on cores of this machine, whose ranks have so much memory together.
plan::DeviceModel host_model(const Launch& launch, std::int64_t memory_bytes);

// A rank of this launch on its device, with the memory of the rank that has least; without a peak
// on a GPU that no table has. Collective. Error(environment) where the device is not there.
plan::DeviceModel device_model(const Launch& launch, const config::Config& config);

// Puts what is chosen, on rank 0, in place of `auto` and resolves the configuration for the ranks.
// `earlier` is asked on rank 0. Collective.
plan::Choice choose(const Launch& launch, config::Config& config,
                    const std::function<std::optional<plan::EarlierChoice>()>& earlier = {});

// Throws device::OutOfMemory where ranks on CPUs are to take more memory than their machine has,
// whose kernel would end them without a word. Collective.
void check_memory(const Launch& launch, const config::Config& config);

}  // namespace tfm::launch
