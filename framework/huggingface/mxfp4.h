#pragma once
// Weights of 4 bits, 32 of which share a scale: MXFP4 (Open Compute Project 2023, "OCP Microscaling
// Formats"), as gpt-oss stores its experts, in two tensors for one.
#include <cstddef>
#include <cstdint>
#include <string>

namespace tfm::huggingface {

inline constexpr std::int64_t kScaledTogether = 32;
inline std::string blocks_of(const std::string& name) { return name + "_blocks"; }
inline std::string scales_of(const std::string& name) { return name + "_scales"; }
// Elements [first, first + count) of a row of blocks, of which the lower half of a byte comes
// first.
void decode_mxfp4(const std::byte* blocks, const std::byte* scales, std::int64_t first,
                  std::int64_t count, float* to);

}  // namespace tfm::huggingface
