// Cores and threads of ranks: overlapping masks, default and explicit binding, limits of control
// groups.
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "launch/support/control_group.h"
#include "launch/support/cores.h"
#include "support/data_files.h"

namespace tfm::launch {
namespace {

Cpus range(int first, int count) {
  Cpus cpus(static_cast<std::size_t>(count));
  std::iota(cpus.begin(), cpus.end(), first);
  return cpus;
}

TEST(Cores, AreSharedByTheRanksThatMayRunOnThem) {
  EXPECT_EQ(threads_on({range(0, 8)}, 0), 8);
  EXPECT_EQ(threads_on({range(0, 1)}, 0), 1);  // bound to one core of many
  EXPECT_EQ(threads_on({range(0, 8), range(0, 8)}, 1), 4);
  EXPECT_EQ(threads_on({range(0, 4), range(4, 4)}, 1), 4);
  EXPECT_EQ(threads_on({range(0, 2), range(0, 2), range(0, 2)}, 2), 1);  // more ranks than cores
  const std::vector<Cpus> uneven{range(0, 6), range(4, 4)};              // 4 and 5 are shared
  EXPECT_EQ(threads_on(uneven, 0), 5);
  EXPECT_EQ(threads_on(uneven, 1), 3);
  const std::vector<Cpus> three(3, range(0, 9));  // 1/3 + 1/3 + ... is not short of 3
  EXPECT_EQ(threads_on(three, 0), 3);
}

TEST(Cores, AreNoMoreThanTheQuota) {
  EXPECT_EQ(threads_on({range(0, 64)}, 0, 4.0), 4);
  EXPECT_EQ(threads_on({range(0, 64), range(0, 64)}, 0, 4.0), 2);
  EXPECT_EQ(threads_on({range(0, 2)}, 0, 4.0), 2);
  EXPECT_EQ(threads_on({range(0, 2)}, 0, 0.5), 1);
}

TEST(Cores, OnlyADefaultBindingIsReplaced) {
  using Environment = std::map<std::string, std::string>;
  Environment e{{"OMPI_COMM_WORLD_SIZE", "2"}};
  EXPECT_FALSE(bound_by_default(e, {}));
  e["OMPI_MCA_orte_bound_at_launch"] = "1";
  EXPECT_TRUE(bound_by_default(e, {}));
  const auto with = [&](const char* name, const char* value) {
    Environment more = e;
    more[name] = value;
    return bound_by_default(more, {});
  };
  EXPECT_FALSE(with("OMPI_MCA_hwloc_base_binding_policy", "core"));
  EXPECT_FALSE(with("OMPI_MCA_rmaps_base_mapping_policy", "slot:PE=2"));
  EXPECT_FALSE(with("OMPI_MCA_orte_rankfile", "ranks.txt"));
  EXPECT_TRUE(with("OMPI_MCA_rmaps_base_mapping_policy", "node"));
}

TEST(Cores, OpenMpi5BindsByDefaultWhereItsWordsDoNotAskForIt) {
  using Words = std::vector<std::string>;
  const std::map<std::string, std::string> e{{"PRTE_LAUNCHED", "1"}};
  EXPECT_TRUE(bound_by_default(e, {"prterun", "-np", "2", "tfm-train", "cfg.yaml"}));
  EXPECT_TRUE(bound_by_default(e, {"prterun", "--map-by", "node", "-np", "2", "tfm-train"}));
  for (const Words& asked : {Words{"--bind-to", "core"}, Words{"--map-by", "slot:PE=2"},
                             Words{"--rankfile", "ranks.txt"},
                             Words{"--prtemca", "hwloc_default_binding_policy", "core"}}) {
    Words words{"prterun"};
    words.insert(words.end(), asked.begin(), asked.end());
    EXPECT_FALSE(bound_by_default(e, words)) << asked[0];
  }
  EXPECT_FALSE(bound_by_default(e, {"prted", "--daemonize"}));  // of another host
  EXPECT_FALSE(bound_by_default(e, {}));
  EXPECT_FALSE(
      bound_by_default({{"PRTE_LAUNCHED", "1"}, {"PRTE_MCA_hwloc_default_binding_policy", "core"}},
                       {"prterun", "-np", "2", "tfm-train"}));
}

class Quota : public testing::Test {
 protected:
  void put(const std::string& path, const std::string& text) {
    const std::filesystem::path file = std::filesystem::path(dir_.str()) / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::optional<double> of(const std::string& groups) { return cpu_quota(dir_.str(), groups); }
  const test::TemporaryFolder dir_;
};

TEST_F(Quota, OfVersion2IsTheLeastOnThePath) {
  EXPECT_EQ(of("0::/job/step\n"), std::nullopt);
  put("job/step/cpu.max", "max 100000\n");
  EXPECT_EQ(of("0::/job/step\n"), std::nullopt);
  put("job/cpu.max", "250000 100000\n");
  EXPECT_EQ(of("0::/job/step\n"), 2.5);
  put("job/step/cpu.max", "150000 100000\n");
  EXPECT_EQ(of("0::/job/step\n"), 1.5);
  put("cpu.max", "100000 100000\n");  // a container sees its own group as the root
  EXPECT_EQ(of("0::/\n"), 1.0);
  EXPECT_EQ(of("0::/not/mounted\n"), 1.0);
}

TEST_F(Quota, OfVersion1IsThatOfItsCpuController) {
  put("cpu,cpuacct/job/cpu.cfs_quota_us", "300000\n");
  put("cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  put("cpuset/job/cpu.cfs_quota_us", "100000\n");
  put("cpuset/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(of("5:cpuset:/job\n4:cpu,cpuacct:/job\n"), 3.0);
  put("cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(of("5:cpuset:/job\n4:cpu,cpuacct:/job\n"), std::nullopt);
}

TEST_F(Quota, OfMemoryIsTheLeastOnThePath) {
  const auto limit = [&](const std::string& groups) { return memory_limit(dir_.str(), groups); };
  put("job/step/memory.max", "max\n");
  EXPECT_EQ(limit("0::/job/step\n"), std::nullopt);
  put("job/memory.max", "8000000000\n");
  EXPECT_EQ(limit("0::/job/step\n"), 8e9);
  put("memory/job/memory.limit_in_bytes", "4000000000\n");
  EXPECT_EQ(limit("9:memory:/job\n4:cpu,cpuacct:/job\n"), 4e9);
}

TEST_F(Quota, OfMemoryLeavesWhatIsNotUsed) {
  const auto left = [&](const std::string& groups) { return memory_left(dir_.str(), groups); };
  put("job/step/memory.max", "max\n");
  put("job/step/memory.current", "2000000000\n");
  EXPECT_EQ(left("0::/job/step\n"), std::nullopt);
  put("job/memory.max", "8000000000\n");
  put("job/memory.current", "5000000000\n");
  put("job/memory.stat", "anon 4000000000\nfile 1500000000\nshmem 500000000\n");
  EXPECT_EQ(left("0::/job/step\n"), 4e9);
  put("memory/job/memory.limit_in_bytes", "4000000000\n");
  put("memory/job/memory.usage_in_bytes", "3000000000\n");
  put("memory/job/memory.stat", "cache 1\ntotal_cache 600000000\ntotal_shmem 100000000\n");
  EXPECT_EQ(left("9:memory:/job\n"), 1.5e9);
}

}  // namespace
}  // namespace tfm::launch
