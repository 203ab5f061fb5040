#include "launch/support/topology.h"

#include <hwloc.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"

namespace tfm::launch {
namespace {

using Bitmap = std::unique_ptr<hwloc_bitmap_s, void (*)(hwloc_bitmap_t)>;
Bitmap bitmap_of(const Cpus& cpus) {
  Bitmap set(hwloc_bitmap_alloc(), hwloc_bitmap_free);
  for (int c : cpus) hwloc_bitmap_set(set.get(), static_cast<unsigned>(c));
  return set;
}

Cpus both(hwloc_const_cpuset_t set, const Cpus& cpus) {
  Cpus found;
  for (int c : cpus)
    if (hwloc_bitmap_isset(set, static_cast<unsigned>(c))) found.push_back(c);
  return found;
}

using Cores = std::vector<Cpus>;  // what ranks do not split

// Those that have one of `cpus`, by NUMA node: neighbors are neighbors on the machine.
std::vector<Cores> cores_by_node(hwloc_topology_t topology, const Cpus& cpus) {
  const Bitmap allowed = bitmap_of(cpus);
  std::vector<Cores> nodes;
  hwloc_obj_t last_core = nullptr, last = nullptr;
  for (hwloc_obj_t pu = nullptr;
       (pu = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PU, pu)) != nullptr;) {
    if (!hwloc_bitmap_isset(allowed.get(), pu->os_index)) continue;
    hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_CORE, pu);
    if (core == nullptr) core = pu;  // some virtual machines have none
    if (last == nullptr || !hwloc_bitmap_isequal(pu->nodeset, last->nodeset)) nodes.emplace_back();
    if (core != last_core) nodes.back().emplace_back();
    nodes.back().back().push_back(static_cast<int>(pu->os_index));
    last_core = core, last = pu;
  }
  return nodes;
}

std::vector<Cores> split_cores(const std::vector<Cores>& nodes) {
  std::vector<Cores> split;
  for (const Cores& cores : nodes) {
    split.emplace_back();
    for (const Cpus& core : cores)
      for (int c : core) split.back().push_back({c});
  }
  return split;
}

std::int64_t count(const std::vector<Cores>& nodes) {
  std::int64_t n = 0;
  for (const Cores& cores : nodes) n += std::ssize(cores);
  return n;
}

// Equal shares; all to each where there are more ranks than cores.
void split(const Cores& cores, std::int64_t ranks, std::vector<Cpus>& shares) {
  const std::int64_t n = std::ssize(cores);
  for (std::int64_t r = 0; r < ranks; ++r) {
    const std::int64_t begin = n < ranks ? 0 : n * r / ranks;
    const std::int64_t end = n < ranks ? n : n * (r + 1) / ranks;
    Cpus& share = shares.emplace_back();
    for (std::int64_t c = begin; c < end; ++c) {
      const Cpus& core = cores[static_cast<std::size_t>(c)];
      share.insert(share.end(), core.begin(), core.end());
    }
  }
}

// Takes node after node until ranks can share these alone, with enough left for the others.
std::vector<Cpus> spread(std::vector<Cores> nodes, std::int64_t ranks) {
  if (count(nodes) < ranks) nodes = split_cores(nodes);
  std::int64_t cores_left = count(nodes), nodes_left = std::ssize(nodes);
  const std::int64_t least = cores_left / ranks;
  std::vector<Cpus> shares;
  Cores taken;
  for (const Cores& cores : nodes) {
    taken.insert(taken.end(), cores.begin(), cores.end());
    const std::int64_t n = std::ssize(taken), others = cores_left - n;
    std::int64_t here = ranks;
    if (--nodes_left > 0) {
      here = std::llround(static_cast<double>(n * ranks) / static_cast<double>(cores_left));
      here = std::min(here, std::max<std::int64_t>(1, ranks - nodes_left));  // one for each node
      if (least > 0) here = std::min(here, n / least);
      if (here == 0 || here == ranks || others / (ranks - here) < least) continue;
    }
    split(taken, here, shares);
    ranks -= here, cores_left = others;
    taken.clear();
  }
  return shares;
}

// The nearest CPUs to a PCI device that are allowed.
Cpus cpus_near(hwloc_topology_t topology, const std::string& bus_id, const Cpus& allowed) {
  hwloc_obj_t at = hwloc_get_pcidev_by_busidstring(topology, bus_id.c_str());
  if (at != nullptr) at = hwloc_get_non_io_ancestor_obj(topology, at);
  for (; at != nullptr; at = at->parent)
    if (Cpus near = both(at->cpuset, allowed); !near.empty()) return near;
  return allowed;
}

std::string list_of(hwloc_const_bitmap_t set) {
  std::string text(static_cast<std::size_t>(hwloc_bitmap_list_snprintf(nullptr, 0, set)), '\0');
  hwloc_bitmap_list_snprintf(text.data(), text.size() + 1, set);
  return text;
}

}  // namespace

Topology topology_of_machine() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0)
    throw Error(ExitCode::environment, "hwloc cannot describe this machine");
  Topology owner(topology, hwloc_topology_destroy);
  hwloc_topology_set_type_filter(topology, HWLOC_OBJ_PCI_DEVICE, HWLOC_TYPE_FILTER_KEEP_ALL);
  if (hwloc_topology_load(topology) != 0)
    throw Error(ExitCode::environment, "hwloc cannot describe this machine");
  return owner;
}

std::vector<Cpus> share_cpus(hwloc_topology* topology, const Cpus& allowed,
                             const std::vector<std::string>& gpus) {
  std::map<Cpus, std::vector<std::size_t>> ranks_of;
  for (std::size_t r = 0; r < gpus.size(); ++r)
    ranks_of[gpus[r].empty() ? allowed : cpus_near(topology, gpus[r], allowed)].push_back(r);
  std::vector<Cpus> shares(gpus.size(), allowed);
  for (const auto& [cpus, ranks] : ranks_of) {
    const std::vector<Cpus> found = spread(cores_by_node(topology, cpus), std::ssize(ranks));
    for (std::size_t i = 0; i < found.size(); ++i) shares[ranks[i]] = found[i];
  }
  return shares;
}

std::string name_of_cpus(hwloc_topology* topology, const Cpus& cpus) {
  const Bitmap set = bitmap_of(cpus);
  const Bitmap nodes(hwloc_bitmap_alloc(), hwloc_bitmap_free);
  hwloc_cpuset_to_nodeset(topology, set.get(), nodes.get());
  return (cpus.size() == 1 ? "CPU " : "CPUs ") + list_of(set.get()) +
         (hwloc_bitmap_weight(nodes.get()) == 1 ? " of NUMA node " : " of NUMA nodes ") +
         list_of(nodes.get());
}

}  // namespace tfm::launch
