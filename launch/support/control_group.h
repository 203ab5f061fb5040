#pragma once
// The limits of the control group (v2 or v1) of this process and of those around it.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace tfm::launch {

// CPU time per wall-clock time. `root`: of the mounted file system; `groups`: the text of
// /proc/self/cgroup.
std::optional<double> cpu_quota(const std::filesystem::path& root, const std::string& groups);
std::optional<double> memory_limit(const std::filesystem::path& root, const std::string& groups);
// Bytes of memory that the processes in the groups may still take: the least of all limits minus
// what is in use, in which the page cache does not count. nullopt if there is no limit.
std::optional<double> memory_left(const std::filesystem::path& root, const std::string& groups);
std::optional<double> cpu_quota_of_this_process();

// The text of a kernel file; "" if there is none.
std::string text_of(const std::filesystem::path& path);

// Bytes of this machine's memory that this process and others in the group may take together.
std::int64_t host_memory();
// Bytes that all processes of this machine and group may still take now: four fifths of the memory
// available to the machine or, if that is less, of memory_left().
std::int64_t available_memory();

}  // namespace tfm::launch
