#pragma once
// The order in which samples are drawn: a function of (seed, epoch), computed and not stored.
#include <bit>
#include <cstdint>

#include "core/error.h"
#include "core/philox.h"

namespace tfm::data {

// Position p of the endless stream of samples is place p % samples of epoch p / samples; an epoch
// holds each sample once. With shuffle, an epoch's order is a keyed Feistel permutation of the
// smallest power of two that holds all samples; places that fall outside are permuted again until
// they fall inside (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002).
class Sampler {
 public:
  Sampler(std::int64_t samples, bool shuffle, std::uint64_t seed)
      : samples_(samples), shuffle_(shuffle), seed_(seed) {
    TFM_CHECK(samples > 0, "a sampler needs at least one sample");
    const int bits = std::bit_width(static_cast<std::uint64_t>(samples - 1));
    low_bits_ = (bits + 1) / 2;
    low_mask_ = (std::uint64_t{1} << low_bits_) - 1;
    high_mask_ = (std::uint64_t{1} << (bits - low_bits_)) - 1;
  }

  std::int64_t samples() const { return samples_; }
  std::int64_t sample(std::int64_t position) const {
    TFM_CHECK(position >= 0, "positions start at 0");
    const std::uint64_t epoch = static_cast<std::uint64_t>(position / samples_);
    std::uint64_t x = static_cast<std::uint64_t>(position % samples_);
    if (!shuffle_) return static_cast<std::int64_t>(x);
    do x = permute(x, epoch);
    while (x >= static_cast<std::uint64_t>(samples_));
    return static_cast<std::int64_t>(x);
  }

 private:
  static constexpr std::uint64_t rounds = 8;

  std::uint64_t permute(std::uint64_t x, std::uint64_t epoch) const {
    const RandomKey key{seed_, Purpose::data, stream_of("sample_order"),
                        static_cast<std::uint32_t>(epoch)};
    std::uint64_t low = x & low_mask_, high = x >> low_bits_;
    for (std::uint64_t round = 0; round < rounds; round += 2) {
      high ^= key.block(round << 32 | low)[0] & high_mask_;
      low ^= key.block((round + 1) << 32 | high)[0] & low_mask_;
    }
    return high << low_bits_ | low;
  }

  std::int64_t samples_;
  bool shuffle_;
  std::uint64_t seed_, low_mask_, high_mask_;
  int low_bits_;
};

}  // namespace tfm::data
