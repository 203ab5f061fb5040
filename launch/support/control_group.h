#pragma once
// What the control group (v2 or v1) of this process and those around it allow.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace tfm::launch {

// CPU time per time. `root`: of the mounted file system; `groups`: the text of /proc/self/cgroup.
std::optional<double> cpu_quota(const std::filesystem::path& root, const std::string& groups);
std::optional<double> memory_limit(const std::filesystem::path& root, const std::string& groups);
std::optional<double> cpu_quota_of_this_process();

// Of a file of the kernel; empty where there is none.
std::string text_of(const std::filesystem::path& path);

// Bytes of this machine's memory that this process and its neighbors in the group may take.
std::int64_t host_memory();

}  // namespace tfm::launch
