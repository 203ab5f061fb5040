#pragma once
// Counter-based random numbers: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011). A number is a pure function of (seed, purpose, stream, step, element index)
// and so does not depend on how tensors are distributed. constexpr functions also run on GPUs.
#include <array>
#include <cstdint>
#include <string_view>

namespace tfm {

enum class Purpose : std::uint32_t { init = 1, dropout = 2, data = 3, sample = 4 };

using Philox4 = std::array<std::uint32_t, 4>;

constexpr Philox4 philox(Philox4 counter, std::uint32_t k0, std::uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter[0],
                        b = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ k0, static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ k1,
               static_cast<std::uint32_t>(a)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return counter;
}

// Random stream of a parameter or op: the FNV-1a hash of its name.
constexpr std::uint32_t stream_of(std::string_view name) {
  std::uint32_t h = 2166136261u;
  for (char c : name) h = (h ^ static_cast<unsigned char>(c)) * 16777619u;
  return h;
}

// Identifies a sequence of 32-bit random words. block(i) returns words 4i to 4i + 3.
struct RandomKey {
  std::uint64_t seed = 0;
  Purpose purpose = Purpose::init;
  std::uint32_t stream = 0;
  std::uint32_t step = 0;

  // The two key words of Philox, also for vectorized generators. `step` and `stream` are the upper
  // two words of its counter.
  constexpr std::uint32_t k0() const { return static_cast<std::uint32_t>(seed); }
  constexpr std::uint32_t k1() const {
    return static_cast<std::uint32_t>(seed >> 32) ^ (static_cast<std::uint32_t>(purpose) << 24);
  }
  constexpr Philox4 block(std::uint64_t i) const {
    return philox(
        {static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32), step, stream}, k0(),
        k1());
  }
  constexpr std::uint32_t word(std::uint64_t element) const {
    return block(element >> 2)[element & 3];
  }
};

// Uniform number in (0, 1] with 24 bits: exact in float and identical on every device.
constexpr float uniform_open(std::uint32_t word) {
  return (static_cast<float>(word >> 8) + 1.0f) * 0x1p-24f;
}

}  // namespace tfm
