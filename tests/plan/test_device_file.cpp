// Descriptions of devices and networks: those that are built in, and problems of a user's.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "plan/device_file.h"
#include "support/data_files.h"

namespace tfm {
namespace {

namespace fs = std::filesystem;

std::string slurp(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

const std::string kAttention =
    "{forward: 1e12, forward_half_length: 100, backward: 2e12, backward_half_length: 0}";
const std::string kRates =
    "{peak: 4e12, product: 3e12, product_half_size: 200, head_64: " + kAttention +
    ", head_128: " + kAttention + "}";
const std::string kDevice =
    "name: mine\nsource: measured\nmemory: 16G\nreserve: 1G\nmemory_bandwidth: 1e11\nfp32: " +
    kRates + "\nbf16: " + kRates + "\nnode: nvlink4\nnetwork: {latency: 1e-5, bandwidth: 1e9}\n";

std::string problems(const std::string& text) {
  try {
    plan::parse_device(text, "mine.yaml");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::usage);
    return e.what();
  }
  return "";
}
std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return text.replace(at, from.size(), to);
}
void expect_problem(const std::string& text, const std::string& part) {
  EXPECT_NE(problems(text).find(part), std::string::npos) << problems(text) << "\nlacks " << part;
}

TEST(DeviceFile, SetsWhatItSays) {
  const plan::DeviceModel d = plan::parse_device(kDevice, "mine.yaml");
  EXPECT_EQ(d.name, "mine");
  EXPECT_EQ(d.kind, config::DeviceKind::cuda);
  EXPECT_EQ(d.usable_bytes(), 15'000'000'000);
  EXPECT_EQ(d.half.product, 3e12);
  EXPECT_EQ(d.half.product_half_size, 200);
  EXPECT_EQ(d.wide.head_128.forward.half_length, 100);
  EXPECT_EQ(d.node.bandwidth, plan::load_network("nvlink4").bandwidth);
  EXPECT_EQ(d.network.latency, 1e-5);
  EXPECT_EQ(d.sustained, 1);
}

TEST(DeviceFile, ProblemsHaveTheirPlace) {
  EXPECT_EQ(problems(kDevice), "");
  expect_problem(replaced(kDevice, "memory:", "memry:"),
                 "mine.yaml:3:1: error: unknown key 'memry'");
  expect_problem(replaced(kDevice, "memory:", "memry:"), "memory");
  expect_problem(replaced(kDevice, "product: 3e12", "prodct: 3e12"), "did you mean 'product'?");
  expect_problem(replaced(kDevice, "memory_bandwidth: 1e11", "memory_bandwidth: fast"),
                 "mine.yaml:5:19");
  expect_problem(replaced(kDevice, "product: 3e12, ", ""), "'fp32.product' is missing");
  expect_problem(replaced(kDevice, "peak: 4e12", "peak: 0"), "fp32.peak");
  expect_problem(replaced(kDevice, "nvlink4", "nvlnk4"), "did you mean 'nvlink4'?");
  expect_problem(replaced(kDevice, "nvlink4", "[1]"), "mine.yaml:8:7");
  expect_problem(replaced(kDevice, "bandwidth: 1e9", "bandwidth: -1"), "network.bandwidth");
  expect_problem(replaced(kDevice, "name: mine\n", ""), "'name' is missing");
  expect_problem(replaced(kDevice, "node: nvlink4\n", ""), "node");
  expect_problem(kDevice + "sustained: 1.5\n", "'sustained': 1.5 is out of range");
  expect_problem(kDevice + "device: tpu\n", "one of cpu, cuda");
  expect_problem(kDevice + "name: again\n", "mine.yaml:10:1");
  expect_problem("[", "mine.yaml:1");
}

TEST(DeviceFile, ADumpReadsBackToTheSame) {
  for (const std::string& name : plan::built_in_devices()) {
    const plan::DeviceModel d = plan::load_device(name);
    const std::string text = plan::dump_device(d);
    EXPECT_EQ(plan::dump_device(plan::parse_device(text, "dump")), text);
    EXPECT_EQ(d.name, name);
  }
  const plan::DeviceModel::Link link{1.25e-6, 3.5e9},
      again = plan::parse_network(plan::dump_network("a network", "measured", link), "dump");
  EXPECT_EQ(again.latency, link.latency);
  EXPECT_EQ(again.bandwidth, link.bandwidth);
}

TEST(DeviceFile, TheFilesOfTheProjectAreBuiltIn) {
  std::size_t files = 0;
  for (const char* folder : {"devices", "networks"})
    for (const auto& entry :
         fs::directory_iterator(fs::path(TFM_SOURCE_DIR) / "configs" / folder)) {
      ++files;
      const auto same = std::ranges::find_if(plan::descriptions(), [&](const auto& d) {
        return d.folder == folder && d.name == entry.path().stem().string();
      });
      ASSERT_NE(same, plan::descriptions().end()) << entry.path();
      EXPECT_EQ(same->text, slurp(entry.path()));
    }
  EXPECT_EQ(files, plan::descriptions().size());
  for (const std::string_view word : words(plan::Target{}))
    EXPECT_EQ(plan::load_device(std::string(word)).name, word);
  for (const std::string& name : plan::built_in_networks())
    EXPECT_GT(plan::load_network(name).bandwidth, 1e9) << name;
  EXPECT_EQ(words(plan::Target{}).size(), plan::built_in_devices().size());
}

TEST(DeviceFile, NamesOfNothingAreRefusedWithTheNearest) {
  const auto refusal = [](const std::string& name) -> std::string {
    try {
      plan::load_device(name);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::usage);
      return e.what();
    }
    return "";
  };
  EXPECT_NE(refusal("h210").find("did you mean 'h200'?"), std::string::npos) << refusal("h210");
  EXPECT_NE(refusal("missing.yaml").find("missing.yaml"), std::string::npos);
  const test::TemporaryFolder folder;
  EXPECT_EQ(plan::load_device(test::put(folder / "device.yaml", kDevice)).name, "mine");
}

TEST(DeviceFile, WhatAFileLeavesOut) {
  const plan::DeviceModel d = plan::parse_device(kDevice, "mine.yaml");
  EXPECT_EQ(d.launch, 0);
  EXPECT_EQ(d.multiprocessors, 0);
  EXPECT_EQ(d.ranks_per_node, 8);
  EXPECT_FALSE(d.overlaps);
  EXPECT_EQ(d.rates_from, "measured");
  EXPECT_EQ(d.memory_bytes, 16'000'000'000);
  EXPECT_EQ(d.wide.peak, 4e12);
  EXPECT_EQ(d.wide.head_64.backward.rate, 2e12);
  EXPECT_EQ(d.network.bandwidth, 1e9);
  EXPECT_EQ(plan::parse_device(replaced(kDevice, "reserve: 1G\n", ""), "mine.yaml").reserve_bytes,
            0);
}

TEST(DeviceFile, MemoryIsOfAGpuOrOfTheMachine) {
  expect_problem(replaced(kDevice, "memory: 16G", "memory: auto"),
                 "memory: auto is for device cpu");
  EXPECT_EQ(plan::parse_device(replaced(kDevice, "memory: 16G", "device: cpu\nmemory: auto"), "m")
                .memory_bytes,
            0);
  expect_problem(replaced(kDevice, "reserve: 1G", "reserve: 16G"), "reserve is not less");
  EXPECT_EQ(problems(replaced(kDevice, "reserve: 1G", "reserve: 15999999999")), "");
  EXPECT_EQ(problems(replaced(kDevice, "memory: 16G\nreserve: 1G", "memory: 1Mi\nreserve: 0")), "");
  expect_problem(replaced(kDevice, "memory: 16G\nreserve: 1G", "memory: 1048575\nreserve: 0"),
                 "memory");
}

TEST(DeviceFile, OneThatIsNotThereIsNamed) {
  const auto problem = [](const std::string& name) {
    try {
      plan::load_device(name);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::usage) << name;
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_NE(problem("h20").find("did you mean 'h200'"), std::string::npos);
  EXPECT_NE(problem("none/x.yaml").find("none/x.yaml"), std::string::npos);
}

// A rank has the cores that its threads find, and its share of the memory, of which a tenth is
// left.
TEST(DeviceModel, OfOneRankOfAMachine) {
  const plan::DeviceModel core = plan::reference_core();
  for (const auto& [cores, ranks, threads, mine] : {std::tuple{8, 2, 4, 4.0},
                                                    {8, 2, 3, 3.0},
                                                    {8, 4, 4, 2.0},
                                                    {2, 4, 1, 0.5},
                                                    {8, 1, 16, 8.0}}) {
    const plan::DeviceModel rank = plan::cpu_model(core, 40'000'000'000, cores, ranks, threads);
    EXPECT_DOUBLE_EQ(rank.wide.peak, mine * core.wide.peak);
    EXPECT_DOUBLE_EQ(rank.half.product, mine * core.half.product);
    EXPECT_DOUBLE_EQ(rank.wide.head_64.forward.rate, mine * core.wide.head_64.forward.rate);
    EXPECT_DOUBLE_EQ(rank.half.head_128.backward.rate, mine * core.half.head_128.backward.rate);
    EXPECT_DOUBLE_EQ(rank.bandwidth, mine * core.bandwidth);
    EXPECT_EQ(rank.wide.product_half_size, core.wide.product_half_size);
    EXPECT_EQ(rank.memory_bytes, 40'000'000'000 / ranks);
    EXPECT_EQ(rank.usable_bytes(), 36'000'000'000 / ranks);
    EXPECT_EQ(rank.ranks_per_node, ranks);
  }
  EXPECT_EQ(plan::target_of("NVIDIA A100-SXM4-80GB", 60'000'000'000), plan::Target::a100_40gb);
  EXPECT_EQ(plan::target_of("NVIDIA A100-SXM4-80GB", 60'000'000'001), plan::Target::a100);
}

}  // namespace
}  // namespace tfm
