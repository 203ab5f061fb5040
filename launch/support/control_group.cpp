#include "launch/support/control_group.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>

namespace tfm::launch {
namespace {

namespace fs = std::filesystem;

std::string groups_of_this_process() { return text_of("/proc/self/cgroup"); }
constexpr const char* kRoot = "/sys/fs/cgroup";

// The least that `limit` finds; it is given the folder of each group and whether that is of v2.
std::optional<double> least_of(
    const fs::path& root, const std::string& groups, const std::string& controller,
    const std::function<std::optional<double>(const fs::path&, bool)>& limit) {
  std::optional<double> least;
  std::istringstream lines(groups);
  for (std::string line; std::getline(lines, line);) {  // "0::/a/b", "4:cpu,cpuacct:/a/b"
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool v2 = controllers.empty();
    if (!v2 && ("," + controllers + ",").find("," + controller + ",") == std::string::npos)
      continue;
    const fs::path mount = v2 ? root : root / controllers;
    for (fs::path group = fs::path(line.substr(second + 1)).relative_path();;
         group = group.parent_path()) {
      if (const auto found = limit(mount / group, v2))
        least = std::min(least.value_or(*found), *found);
      if (group.empty()) break;
    }
  }
  return least;
}

}  // namespace

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::optional<double> cpu_quota(const fs::path& root, const std::string& groups) {
  return least_of(root, groups, "cpu", [](const fs::path& group, bool v2) -> std::optional<double> {
    double quota = -1, period = -1;
    if (v2)
      std::istringstream(text_of(group / "cpu.max")) >> quota >> period;  // or "max 100000"
    else
      quota = std::atof(text_of(group / "cpu.cfs_quota_us").c_str()),
      period = std::atof(text_of(group / "cpu.cfs_period_us").c_str());
    return quota > 0 && period > 0 ? std::optional(quota / period) : std::nullopt;
  });
}

std::optional<double> memory_limit(const fs::path& root, const std::string& groups) {
  return least_of(root, groups, "memory",
                  [](const fs::path& group, bool v2) -> std::optional<double> {
                    const std::string text =  // v2: or "max"
                        text_of(group / (v2 ? "memory.max" : "memory.limit_in_bytes"));
                    const double bytes = std::atof(text.c_str());
                    return bytes > 0 ? std::optional(bytes) : std::nullopt;
                  });
}

std::optional<double> cpu_quota_of_this_process() {
  return cpu_quota(kRoot, groups_of_this_process());
}

std::int64_t host_memory() {
  const auto all =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  return static_cast<std::int64_t>(
      std::min(all, memory_limit(kRoot, groups_of_this_process()).value_or(all)));
}

}  // namespace tfm::launch
