#pragma once
// What the harnesses share. A harness defines libFuzzer's entry, LLVMFuzzerTestOneInput, and links
// driver.cpp (or libFuzzer).
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "core/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace tfm::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Runs a parser and what uses its result. The only way out of bad input is Error(input) or
// Error(usage).
template <class F>
int survives(F&& parse) {
  try {
    parse();
  } catch (const Error& e) {
    if (e.code() == ExitCode::input || e.code() == ExitCode::usage) return 0;
    std::fprintf(stderr, "not an error of the input: %s\n", e.what());
    std::abort();
  }
  return 0;
}

// A folder in memory of a process's own, for parsers that read files.
inline std::string scratch(pid_t process) {
  const std::string memory = "/dev/shm";
  return (std::filesystem::is_directory(memory) ? memory
                                                : std::filesystem::temp_directory_path().string()) +
         "/tfm-fuzz-" + std::to_string(process);
}
inline std::string put(const std::string& name, std::string_view content) {
  static const std::string folder = scratch(::getpid());
  static const bool made [[maybe_unused]] = std::filesystem::create_directories(folder);
  const std::string path = folder + "/" + name;
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

// A safetensors file from its header, up to a zero byte, and its data.
inline std::string safetensors_of(std::string_view header_and_data) {
  const std::size_t header = std::min(header_and_data.find('\0'), header_and_data.size());
  std::string file(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(header >> (8 * i));
  return file.append(header_and_data.substr(0, header))
      .append(header_and_data.substr(std::min(header + 1, header_and_data.size())));
}

}  // namespace tfm::fuzz
