#pragma once
// How the ranks of a node share its cores: near their GPUs, otherwise spread over its NUMA nodes.
#include <memory>
#include <string>
#include <vector>

struct hwloc_topology;

namespace tfm::launch {

using Cpus = std::vector<int>;  // hardware threads, as the kernel numbers them

using Topology = std::unique_ptr<hwloc_topology, void (*)(hwloc_topology*)>;
// NUMA nodes, cores and PCI devices of this machine; Error(environment) where hwloc cannot say.
Topology topology_of_machine();

// The CPUs of each rank of a node whose job may run on `allowed`. `gpus`: for each rank the PCI bus
// id of its GPU ("0000:07:00.0"), or an empty text where it computes on the CPU.
//
// Ranks with GPUs share the CPUs of the NUMA nodes nearest to these, ranks without all of them.
// Neighbors get neighboring cores. No rank has less than its share, in whole cores; within this
// none has cores of two NUMA nodes that could do with one. Where ranks are more than cores they
// split cores; where they are more than CPUs, all of a NUMA node share its CPUs.
std::vector<Cpus> share_cpus(hwloc_topology* topology, const Cpus& allowed,
                             const std::vector<std::string>& gpus);

// "CPUs 0-7 of NUMA node 0"
std::string name_of_cpus(hwloc_topology* topology, const Cpus& cpus);

}  // namespace tfm::launch
