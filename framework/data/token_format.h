#pragma once
// Constants of the two token file formats, shared by the reader and the writer.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace tfm::data::token_format {

static_assert(std::endian::native == std::endian::little,
              "token files are little-endian and read in place");

inline constexpr std::int64_t llmc_header_bytes = 256 * 4;
inline constexpr std::int32_t llmc_magic16 = 20240520, llmc_version16 = 1;
inline constexpr std::int32_t llmc_magic32 = 20240801, llmc_version32 = 7;

inline constexpr std::string_view megatron_magic{"MMIDIDX\0\0", 9};
inline constexpr std::uint64_t megatron_version = 1;
inline constexpr std::int64_t megatron_header_bytes = 9 + 8 + 1 + 8 + 8;
inline constexpr std::int64_t megatron_type_at = 17, megatron_sequences_at = 18,
                              megatron_boundaries_at = 26;

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

}  // namespace tfm::data::token_format
