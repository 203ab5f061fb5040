#pragma once
// Master weights (Micikevicius et al. 2018): the fp32 weights that an optimizer updates, of which
// parameters in 16 bits are rounded copies. A bf16 number is the upper half of an fp32 number, so
// beside bf16 parameters the lower half is enough: the bits of a master weight are those of its
// parameter * 2^16 + remainder, a signed number. For that, parameters are rounded to nearest with
// ties away from zero; of a tie to even the remainder could not tell which way it went.
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
  const bool nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;  // loses its payload, which could carry over
  const std::uint32_t u = nan ? 0x7FC00000u : bits;
  return {std::bit_cast<bf16>(static_cast<std::uint16_t>((u + 0x8000u) >> 16)),
          {static_cast<std::uint16_t>(u)}};
}
constexpr float join_weight(bf16 rounded, Remainder remainder) {
  return std::bit_cast<float>(
      (static_cast<std::uint32_t>(rounded.bits) << 16) +
      static_cast<std::uint32_t>(static_cast<std::int16_t>(remainder.bits)));
}

// Where master weights and their parameters lie: a pointer to the first of them. Of fp16 ...
struct MasterWeights {
  float* master = nullptr;
  f16* rounded = nullptr;

  constexpr MasterWeights operator+(std::int64_t n) const { return {master + n, rounded + n}; }
  constexpr float operator[](std::int64_t i) const { return master[i]; }
  constexpr void set(std::int64_t i, float w) const { master[i] = w, rounded[i] = f16(w); }
};
// ... and of bf16.
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

// What an optimizer updates of parameters of type P.
template <class P>
using Weights = std::conditional_t<std::is_same_v<P, bf16>, SplitMasterWeights,
                                   std::conditional_t<std::is_same_v<P, f16>, MasterWeights, P*>>;

// Bytes of memory for each beside the parameter.
constexpr std::int64_t master_bytes(DType parameters) {
  return parameters == DType::bf16 ? sizeof(Remainder) : is_half(parameters) ? sizeof(float) : 0;
}

}  // namespace tfm
