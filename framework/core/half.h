#pragma once
// 16-bit floating-point storage types; arithmetic is done in float. Conversion rounds to nearest,
// ties to even, and keeps a NaN a NaN. bf16 weights with master weights are rounded differently,
// see core/master_weights.h.
#include <bit>
#include <cstdint>

namespace tfm {

struct bf16 {  // 1 sign, 8 exponent, 7 fraction bits
  std::uint16_t bits;
  bf16() = default;
  constexpr explicit bf16(float f) {
    const auto u = std::bit_cast<std::uint32_t>(f);
    const bool nan = (u & 0x7FFFFFFFu) > 0x7F800000u;
    bits = static_cast<std::uint16_t>(nan ? u >> 16 | 0x40u : (u + 0x7FFFu + (u >> 16 & 1u)) >> 16);
  }
  constexpr operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

struct f16 {  // IEEE binary16
  std::uint16_t bits;
  f16() = default;
  constexpr explicit f16(float f) {
    const auto u = std::bit_cast<std::uint32_t>(f);
    const std::uint32_t sign = u >> 16 & 0x8000u, magnitude = u & 0x7FFFFFFFu;
    std::uint32_t m = 0;
    if (magnitude > 0x7F800000u)
      m = 0x7E00u | (magnitude >> 13 & 0x3FFu);
    else if (magnitude >= 0x477FF000u)
      m = 0x7C00u;
    else if (magnitude < 0x38800000u)  // below 2^-14: a multiple of 2^-24
      m = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
          std::bit_cast<std::uint32_t>(0.5f);
    else
      m = (magnitude - 0x38000000u + 0xFFFu + (magnitude >> 13 & 1u)) >> 13;
    bits = static_cast<std::uint16_t>(sign | m);
  }
  constexpr operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16,
                        exponent = bits >> 10 & 31u, fraction = bits & 1023u;
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | fraction << 13);
    if (exponent > 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
    return std::bit_cast<float>(
        sign | std::bit_cast<std::uint32_t>(static_cast<float>(fraction) * 0x1p-24f));
  }
};

}  // namespace tfm
