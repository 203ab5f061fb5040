#pragma once
// Proof on a user's own configuration that the kernels of its run (precision, device, layout,
// recomputation, accumulation) compute what float64 on one rank computes, as well as the precision
// allows.
#include "train/verify.h"

namespace tfm::train {

// Errors are measured against float64, and may be so many times that of the plain computation
// rounded to the run's precision.
inline constexpr double kResultFactor = 2, kGradientFactor = 3;

// Full width with as many layers as fit, and with at most two micro-batches a step.
struct AsRunSize {
  config::Config config;
  std::int64_t layers = 0, configured = 0;  // of each stack
  std::int64_t bytes = 0, available = 0;    // of the host, of one rank
};
// `available`: bytes of the host's memory that this rank may take; the least of all ranks counts.
AsRunSize as_run_size(const config::Config& config, const comm::Mesh& mesh, std::int64_t available);
// Of the machine's free memory, the part of one of so many ranks on it.
std::int64_t available_memory(int ranks_of_host);

// Collective over the mesh; the same findings on every rank.
std::vector<Finding> verify_as_run(const config::Config& config, const comm::Mesh& mesh,
                                   const device::Device& device,
                                   const Interference& interference = {});

}  // namespace tfm::train
