// Which CPUs ranks get of machines that are described: sockets, NUMA nodes, hardware threads, GPUs,
// and CPUs that a job may not use.
#include <gtest/gtest.h>
#include <hwloc.h>

#include <map>
#include <numeric>

#include "launch/support/topology.h"

namespace tfm::launch {
namespace {

Cpus numbered(int first, int end) {
  Cpus cpus(static_cast<std::size_t>(end - first));
  std::iota(cpus.begin(), cpus.end(), first);
  return cpus;
}

Topology described(const auto& describe) {
  hwloc_topology_t t = nullptr;
  EXPECT_EQ(hwloc_topology_init(&t), 0);
  EXPECT_EQ(describe(t), 0);
  hwloc_topology_set_type_filter(t, HWLOC_OBJ_PCI_DEVICE, HWLOC_TYPE_FILTER_KEEP_ALL);
  EXPECT_EQ(hwloc_topology_load(t), 0);
  return {t, hwloc_topology_destroy};
}
Topology synthetic(const char* text) {
  return described([&](hwloc_topology_t t) { return hwloc_topology_set_synthetic(t, text); });
}

// An object of hwloc's XML.
std::string object(const char* type, int index, const Cpus& cpus, const Cpus& nodes,
                   const std::string& inner) {
  const auto hex = [](const Cpus& bits) {
    std::uint64_t mask = 0;
    for (int b : bits) mask |= std::uint64_t{1} << b;
    char text[32];
    std::snprintf(text, sizeof text, "0x%08x,0x%08x", static_cast<unsigned>(mask >> 32),
                  static_cast<unsigned>(mask));
    return std::string(text);
  };
  const std::string c = hex(cpus), n = hex(nodes);
  std::string text = "<object type=\"" + std::string(type) + "\" os_index=\"" +
                     std::to_string(index) + "\" cpuset=\"" + c + "\" complete_cpuset=\"" + c +
                     "\" nodeset=\"" + n + "\" complete_nodeset=\"" + n + "\"";
  if (type == std::string("Machine"))
    text += " allowed_cpuset=\"" + c + "\" allowed_nodeset=\"" + n + "\"";
  return text + ">" + inner + "</object>";
}

// Two GPUs on one bridge of the host.
std::string gpus_at(int first_bus, int second_bus) {
  char text[640];
  const char* device =
      "<object type=\"PCIDev\" pci_busid=\"0000:%02x:00.0\" pci_type=\"0302 [10de:20b0] "
      "[10de:1463] "
      "a1\" pci_link_speed=\"0\"/>";
  std::snprintf(text, sizeof text,
                "<object type=\"Bridge\" bridge_type=\"0-1\" depth=\"0\" "
                "bridge_pci=\"0000:[%02x-%02x]\">",
                first_bus, second_bus);
  std::string all = text;
  for (int bus : {first_bus, second_bus}) {
    std::snprintf(text, sizeof text, device, bus);
    all += text;
  }
  return all + "</object>";
}

// Two sockets of four NUMA nodes of 8 cores, GPUs at every other node: 3, 1, 7 and 5.
Topology machine_with_8_gpus() {
  std::string sockets;
  for (int s = 0; s < 2; ++s) {
    std::string inner;
    for (int node = 4 * s; node < 4 * s + 4; ++node) {
      const Cpus cpus = numbered(8 * node, 8 * node + 8);
      std::string cores = object("NUMANode", node, cpus, {node}, "");
      for (int c : cpus) cores += object("Core", c, {c}, {node}, object("PU", c, {c}, {node}, ""));
      if (node == 3) cores += gpus_at(0x07, 0x0f);
      if (node == 1) cores += gpus_at(0x47, 0x4e);
      if (node == 7) cores += gpus_at(0x87, 0x90);
      if (node == 5) cores += gpus_at(0xb7, 0xbd);
      inner += object("Group", node, cpus, {node}, cores);
    }
    sockets +=
        object("Package", s, numbered(32 * s, 32 * s + 32), numbered(4 * s, 4 * s + 4), inner);
  }
  const std::string xml =
      "<?xml version=\"1.0\"?><!DOCTYPE topology SYSTEM \"hwloc2.dtd\"><topology version=\"2.0\">" +
      object("Machine", 0, numbered(0, 64), numbered(0, 8), sockets) + "</topology>";
  return described([&](hwloc_topology_t t) {
    return hwloc_topology_set_xmlbuffer(t, xml.c_str(), static_cast<int>(xml.size()) + 1);
  });
}

std::vector<std::string> without_gpus(int ranks) {
  return std::vector<std::string>(static_cast<std::size_t>(ranks));
}
std::vector<Cpus> shares(const Topology& t, const Cpus& allowed, int ranks) {
  return share_cpus(t.get(), allowed, without_gpus(ranks));
}

using Shares = std::vector<Cpus>;

TEST(Topology, RanksTakeWholeNumaNodesWhereTheNumbersAllow) {
  const Topology t = synthetic("package:2 numa:4 core:8 pu:1");
  EXPECT_EQ(shares(t, numbered(0, 64), 1), Shares{numbered(0, 64)});
  EXPECT_EQ(shares(t, numbered(0, 64), 2), (Shares{numbered(0, 32), numbered(32, 64)}));
  const Shares eight = shares(t, numbered(0, 64), 8), sixteen = shares(t, numbered(0, 64), 16);
  for (int r = 0; r < 8; ++r) {
    const auto i = static_cast<std::size_t>(r);
    EXPECT_EQ(eight[i], numbered(8 * r, 8 * r + 8));
    EXPECT_EQ(sixteen[2 * i], numbered(8 * r, 8 * r + 4));
    EXPECT_EQ(sixteen[2 * i + 1], numbered(8 * r + 4, 8 * r + 8));
  }
}

TEST(Topology, ThreeRanksOnTwoNodesHaveEqualShares) {
  const Topology t = synthetic("numa:2 core:8 pu:1");
  EXPECT_EQ(shares(t, numbered(0, 16), 3),
            (Shares{numbered(0, 5), numbered(5, 10), numbered(10, 16)}));
}

// Six ranks have two cores each at least, and could have three of each of three nodes.
TEST(Topology, AShareEndsWithItsNode) {
  const Topology t = synthetic("numa:4 core:4 pu:1");
  EXPECT_EQ(shares(t, numbered(0, 16), 6),
            (Shares{numbered(0, 2), numbered(2, 4), numbered(4, 8), numbered(8, 10),
                    numbered(10, 12), numbered(12, 16)}));
}

// Each share has the least that equal shares have, and no CPU is idle or shared; where each node
// has room for such shares, and all together for all, none has CPUs of two nodes.
void expect_shares(const Topology& t, int cores_of_node, const Cpus& allowed, int ranks) {
  const std::int64_t least = std::ssize(allowed) / ranks;
  std::map<int, std::int64_t> nodes;
  for (int c : allowed) ++nodes[c / cores_of_node];
  std::int64_t room = 0;
  for (const auto& [node, cores] : nodes) room += cores < least ? -ranks : cores / least;
  Cpus all;
  for (const Cpus& share : shares(t, allowed, ranks)) {
    EXPECT_GE(std::ssize(share), least);
    if (room >= ranks && ranks >= std::ssize(nodes)) {
      EXPECT_EQ(share.front() / cores_of_node, share.back() / cores_of_node);
    }
    all.insert(all.end(), share.begin(), share.end());
  }
  EXPECT_EQ(all, allowed);
}

TEST(Topology, EveryRankHasItsShareOfOneNodeWhereTheNumbersAllow) {
  const std::map<std::string, int> machines{{"numa:1 core:7 pu:1", 7},
                                            {"numa:2 core:5 pu:1", 5},
                                            {"package:2 numa:2 core:3 pu:1", 3},
                                            {"numa:3 core:8 pu:1", 8}};
  for (const auto& [text, cores_of_node] : machines) {
    const Topology t = synthetic(text.c_str());
    const int n = hwloc_get_nbobjs_by_type(t.get(), HWLOC_OBJ_PU);
    for (int hidden = 0; hidden < n; ++hidden)
      for (int ranks = 1; ranks <= n - hidden; ++ranks) {
        SCOPED_TRACE(text + ", " + std::to_string(hidden) + " hidden, ranks " +
                     std::to_string(ranks));
        expect_shares(t, cores_of_node, numbered(hidden, n), ranks);
        Cpus middle_hidden = numbered(0, n);
        std::erase_if(middle_hidden, [&](int c) { return (c + n - n / 3) % n < hidden; });
        expect_shares(t, cores_of_node, middle_hidden, ranks);
      }
  }
}

TEST(Topology, HiddenCoresMoveTheBorderToThatOfTheNode) {
  const Topology t = synthetic("numa:4 core:8 pu:1");
  Cpus allowed = numbered(0, 32);
  allowed.erase(allowed.begin() + 20);  // of the third node
  const Shares two = shares(t, allowed, 2);
  EXPECT_EQ(two[0], numbered(0, 16));
  EXPECT_EQ(two[1].size(), 15u);
  EXPECT_EQ(
      shares(t, numbered(1, 12), 5),  // 7 of a node and 4 of the next: no share has both
      (Shares{numbered(1, 3), numbered(3, 5), numbered(5, 8), numbered(8, 10), numbered(10, 12)}));
}

TEST(Topology, MoreRanksThanCores) {
  const Topology t = synthetic("numa:2 core:2 pu:1");
  const Shares six = shares(t, numbered(0, 4), 6);
  for (int r = 0; r < 6; ++r)
    EXPECT_EQ(six[static_cast<std::size_t>(r)], r < 3 ? numbered(0, 2) : numbered(2, 4));
  EXPECT_EQ(shares(synthetic("numa:1 core:2 pu:1"), numbered(0, 2), 3), Shares(3, numbered(0, 2)));
}

// As Linux numbers them: the second threads of all cores come after the first ones.
TEST(Topology, HardwareThreadsOfACoreStayTogether) {
  const Topology t = synthetic("package:2 core:2 pu:2(indexes=0,4,1,5,2,6,3,7)");
  EXPECT_EQ(shares(t, numbered(0, 8), 2), (Shares{{0, 4, 1, 5}, {2, 6, 3, 7}}));
  EXPECT_EQ(shares(t, numbered(0, 8), 4), (Shares{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(shares(t, numbered(0, 8), 8), (Shares{{0}, {4}, {1}, {5}, {2}, {6}, {3}, {7}}));
  EXPECT_EQ(shares(t, numbered(0, 4), 2), (Shares{{0, 1}, {2, 3}}));  // hidden: the second threads
}

TEST(Topology, RanksRunNearTheirGpus) {
  const Topology t = machine_with_8_gpus();
  const std::vector<std::string> gpus{"0000:07:00.0", "0000:0F:00.0", "0000:47:00.0",
                                      "0000:4E:00.0", "0000:87:00.0", "0000:90:00.0",
                                      "0000:B7:00.0", "0000:BD:00.0"};
  const Shares all = share_cpus(t.get(), numbered(0, 64), gpus);
  EXPECT_EQ(all, (Shares{numbered(24, 28), numbered(28, 32), numbered(8, 12), numbered(12, 16),
                         numbered(56, 60), numbered(60, 64), numbered(40, 44), numbered(44, 48)}));
  // One that is alone on its node has all of it; so it has where another is visible first.
  EXPECT_EQ(share_cpus(t.get(), numbered(0, 64), {gpus[6], gpus[0]}),
            (Shares{numbered(40, 48), numbered(24, 32)}));
  // Four ranks on one GPU; a rank on the CPU beside.
  EXPECT_EQ(share_cpus(t.get(), numbered(0, 64), {gpus[0], gpus[0], gpus[0], gpus[0]})[3],
            numbered(30, 32));
  EXPECT_EQ(share_cpus(t.get(), numbered(0, 64), {gpus[0], ""})[1], numbered(0, 64));
}

TEST(Topology, AGpuWhoseNodeIsHiddenHasTheNearestCpus) {
  const Topology t = machine_with_8_gpus();
  EXPECT_EQ(share_cpus(t.get(), numbered(0, 20), {"0000:07:00.0"}), Shares{numbered(0, 20)});
  EXPECT_EQ(share_cpus(t.get(), numbered(16, 48), {"0000:07:00.0", "0000:87:00.0"}),
            (Shares{numbered(24, 32), numbered(32, 48)}));  // the second: of its socket
  EXPECT_EQ(share_cpus(t.get(), numbered(0, 64), {"0000:33:00.0"}),
            Shares{numbered(0, 64)});  // unknown
}

TEST(Topology, OfThisMachineHasTheCpusOfThisProcess) {
  const Topology t = topology_of_machine();
  EXPECT_GE(hwloc_get_nbobjs_by_type(t.get(), HWLOC_OBJ_PU), 1);
  const auto cpu = static_cast<int>(hwloc_get_obj_by_type(t.get(), HWLOC_OBJ_PU, 0)->os_index);
  EXPECT_EQ(shares(t, {cpu}, 1), Shares{{cpu}});
}

TEST(Topology, NamesCpusAndTheirNodes) {
  const Topology t = synthetic("numa:2 core:4 pu:1");
  EXPECT_EQ(name_of_cpus(t.get(), numbered(0, 4)), "CPUs 0-3 of NUMA node 0");
  EXPECT_EQ(name_of_cpus(t.get(), {2, 4, 5}), "CPUs 2,4-5 of NUMA nodes 0-1");
  EXPECT_EQ(name_of_cpus(t.get(), {7}), "CPU 7 of NUMA node 1");
}

}  // namespace
}  // namespace tfm::launch
