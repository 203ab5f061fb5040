#pragma once
// Divides the cores of a node among its ranks: near their GPUs, otherwise spread over its NUMA
// nodes.
#include <memory>
#include <string>
#include <vector>

struct hwloc_topology;

namespace tfm::launch {

using Cpus = std::vector<int>;  // hardware threads, as the kernel numbers them

using Topology = std::unique_ptr<hwloc_topology, void (*)(hwloc_topology*)>;
// The NUMA nodes, cores and PCI devices of this machine. Error(environment) if hwloc cannot
// determine them.
Topology topology_of_machine();

// The CPUs of each rank of a node whose job may run on `allowed`. `gpus`: for each rank the PCI bus
// id of its GPU ("0000:07:00.0"), or "" if it computes on the CPU.
//
// Ranks with GPUs share the CPUs of the NUMA nodes nearest to these; ranks without share all of
// them. Neighbouring ranks get neighbouring cores. No rank gets less than its share, in whole
// cores; within that, none gets cores of two NUMA nodes if one suffices. If there are more ranks
// than cores they split cores; if there are more than CPUs, the ranks of a NUMA node share all its
// CPUs.
std::vector<Cpus> share_cpus(hwloc_topology* topology, const Cpus& allowed,
                             const std::vector<std::string>& gpus);

// "CPUs 0-7 of NUMA node 0"
std::string name_of_cpus(hwloc_topology* topology, const Cpus& cpus);

}  // namespace tfm::launch
