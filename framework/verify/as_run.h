#pragma once
// Verifies on a user's own configuration that the kernels of its run (precision, device, layout,
// recomputation, accumulation) compute what float64 on one rank computes, as closely as the
// precision allows.
#include <functional>

#include "comm/mesh.h"
#include "config/config.h"
#include "device/device.h"
#include "verify/finding.h"

namespace tfm::verify {

// Errors are measured against float64. They may be at most so many times that of the plain
// computation rounded to the run's precision.
inline constexpr double kResultFactor = 2, kGradientFactor = 3;

// The configuration at full width, with as many layers as fit and at most two micro-batches a step.
struct AsRunSize {
  config::Config config;
  std::int64_t layers = 0, configured = 0;  // of each stack
  std::int64_t bytes = 0, available = 0;    // host memory of one rank
};
// Collective over the mesh. `available`: bytes of the host's memory that this rank may take; the
// least of all ranks counts.
AsRunSize as_run_size(const config::Config& config, const comm::Mesh& mesh, std::int64_t available);

// Collective over the mesh; the same findings on every rank. `traced` is called with gradients,
// loss and norm of the first step, before the comparison.
std::vector<Finding> verify_as_run(
    const config::Config& config, const comm::Mesh& mesh, const device::Device& device,
    const std::function<void(Trace&)>& traced = [](Trace&) {});

}  // namespace tfm::verify
