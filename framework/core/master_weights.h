#pragma once
// Master weights (Micikevicius et al. 2018): the fp32 weights that the optimizer updates. 16-bit
// parameters are rounded copies of them.
//
// bf16 is the upper half of fp32, so for bf16 parameters only a 16-bit remainder is stored:
//   bits(master) = bits(parameter) * 2^16 + remainder,  remainder a signed 16-bit integer.
// Parameters are therefore rounded to nearest with ties away from zero. With ties to even, a
// remainder of 0x8000 would be ambiguous: 2^15 after rounding down, -2^15 after rounding up.
#include <bit>
#include <cstdint>
#include <type_traits>

#include "core/dtype.h"

namespace tfm {

struct Remainder {
  std::uint16_t bits;
};
struct SplitWeight {
  bf16 rounded;
  Remainder remainder;
};

constexpr SplitWeight split_weight(float master) {
  const auto bits = std::bit_cast<std::uint32_t>(master);
  // A NaN loses its payload, which could carry into the exponent.
  const bool nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  const std::uint32_t u = nan ? 0x7FC00000u : bits;
  return {std::bit_cast<bf16>(static_cast<std::uint16_t>((u + 0x8000u) >> 16)),
          {static_cast<std::uint16_t>(u)}};
}
constexpr float join_weight(bf16 rounded, Remainder remainder) {
  return std::bit_cast<float>(
      (static_cast<std::uint32_t>(rounded.bits) << 16) +
      static_cast<std::uint32_t>(static_cast<std::int16_t>(remainder.bits)));
}

// Pointers to a range of fp16 parameters and their fp32 master weights.
struct MasterWeights {
  float* master = nullptr;
  f16* rounded = nullptr;

  constexpr MasterWeights operator+(std::int64_t n) const { return {master + n, rounded + n}; }
  constexpr float operator[](std::int64_t i) const { return master[i]; }
  constexpr void set(std::int64_t i, float w) const { master[i] = w, rounded[i] = f16(w); }
};
// Pointers to a range of bf16 parameters and the remainders of their master weights.
struct SplitMasterWeights {
  Remainder* remainder = nullptr;
  bf16* rounded = nullptr;

  constexpr SplitMasterWeights operator+(std::int64_t n) const {
    return {remainder + n, rounded + n};
  }
  constexpr float operator[](std::int64_t i) const { return join_weight(rounded[i], remainder[i]); }
  constexpr void set(std::int64_t i, float w) const {
    const SplitWeight split = split_weight(w);
    remainder[i] = split.remainder, rounded[i] = split.rounded;
  }
};

// What an optimizer updates for parameters of type P: the master weights of 16-bit parameters, else
// the parameters.
template <class P>
using Weights = std::conditional_t<std::is_same_v<P, bf16>, SplitMasterWeights,
                                   std::conditional_t<std::is_same_v<P, f16>, MasterWeights, P*>>;

// Bytes that the master weight of one parameter needs in addition to the parameter.
constexpr std::int64_t master_bytes(DType parameters) {
  return parameters == DType::bf16 ? sizeof(Remainder) : is_half(parameters) ? sizeof(float) : 0;
}

}  // namespace tfm
