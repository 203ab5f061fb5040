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

std::optional<double> memory_limit_of(const fs::path& group, bool v2) {
  const double bytes =  // v2: or "max"
      std::atof(text_of(group / (v2 ? "memory.max" : "memory.limit_in_bytes")).c_str());
  return bytes > 0 ? std::optional(bytes) : std::nullopt;
}

// Of lines such as "name value" or "name: value kB"; 0 where there is none.
double field_of(const fs::path& file, const std::string& name) {
  std::istringstream lines(text_of(file));
  for (std::string line; std::getline(lines, line);)
    if (const auto end = line.find_first_of(": "); line.substr(0, end) == name && end != line.npos)
      return std::atof(line.c_str() + end + 1);
  return 0;
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
  return least_of(root, groups, "memory", memory_limit_of);
}

std::optional<double> memory_left(const fs::path& root, const std::string& groups) {
  return least_of(
      root, groups, "memory", [](const fs::path& group, bool v2) -> std::optional<double> {
        const auto limit = memory_limit_of(group, v2);
        if (!limit) return std::nullopt;
        const fs::path used = v2 ? "memory.current" : "memory.usage_in_bytes";
        const fs::path stat = group / "memory.stat";
        const double cached = field_of(stat, v2 ? "file" : "total_cache") -
                              field_of(stat, v2 ? "shmem" : "total_shmem");
        return *limit - std::max(std::atof(text_of(group / used).c_str()) - cached, 0.0);
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

std::int64_t available_memory() {
  const double free = 1024 * field_of("/proc/meminfo", "MemAvailable"),
               left = memory_left(kRoot, groups_of_this_process()).value_or(free);
  return static_cast<std::int64_t>(0.8 * std::clamp(left, 0.0, free));
}

}  // namespace tfm::launch
