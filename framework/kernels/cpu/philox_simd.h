#pragma once
// Many blocks of a random stream at once. Each 32-bit word of a counter is in the low half of a
// 64-bit lane, as the widening product of a round requires; the content of the high half is
// ignored.
#include <array>

#include "kernels/cpu/simd.h"
#include "kernels/dropout.h"

namespace tfm::kernels {

using Words = Vec<std::uint64_t>;
inline constexpr int kPhiloxElements = 4 * kLanes<std::uint64_t>;  // per call of random_words

TFM_INLINE inline Words low_product(Words a, std::uint64_t b) {  // (a mod 2^32) * b
#ifdef TFM_AVX512
  return (Words)_mm512_maskz_mul_epu32(0xFF, (__m512i)a,
                                       _mm512_set1_epi64(static_cast<long long>(b)));
#elif defined(__AVX2__)
  return (Words)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(static_cast<long long>(b)));
#elif defined(__ARM_NEON)
  return (Words)vmull_n_u32(vmovn_u64((uint64x2_t)a), static_cast<std::uint32_t>(b));
#else
  return (a & 0xFFFFFFFFu) * b;
#endif
}

// The four words of consecutive blocks from `block` on, one block per lane.
TFM_INLINE inline std::array<Words, 4> random_blocks(const RandomKey& key, std::uint64_t block) {
  const Words counter = iota<std::uint64_t>() + block;
  Words c0 = counter, c1 = counter >> 32, c2 = splat<std::uint64_t>(key.step),
        c3 = splat<std::uint64_t>(key.stream);
  std::uint32_t k0 = key.k0(), k1 = key.k1();
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const Words a = low_product(c0, 0xD2511F53u), b = low_product(c2, 0xCD9E8D57u);
    c0 = (b >> 32) ^ c1 ^ std::uint64_t{k0};
    c1 = b;
    c2 = (a >> 32) ^ c3 ^ std::uint64_t{k1};
    c3 = a;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  constexpr std::uint64_t mask = 0xFFFFFFFFu;
  return {c0 & mask, c1 & mask, c2 & mask, c3 & mask};
}

// Writes the words of elements [4 * block, 4 * block + kPhiloxElements).
TFM_INLINE inline void random_words(const RandomKey& key, std::uint64_t block, std::uint32_t* out) {
  const auto [c0, c1, c2, c3] = random_blocks(key, block);
  const Words first = c0 | (c1 << 32), second = c2 | (c3 << 32);
  std::uint64_t pairs[2 * kLanes<std::uint64_t>];
  for (int i = 0; i < kLanes<std::uint64_t>; ++i) {
    pairs[2 * i] = first[i];
    pairs[2 * i + 1] = second[i];
  }
  std::memcpy(out, pairs, sizeof pairs);
}

// Dropout factors of elements [first, first + n), each 0 or scale. `buffer` has room for
// n + kFactorSlack elements; returns a pointer to the first factor in it.
inline constexpr std::int64_t kFactorSlack = 4 + kPhiloxElements;
template <class T>
const T* dropout_factors(const Dropout& d, std::uint64_t first, std::int64_t n, T* buffer) {
  const std::uint32_t threshold = d.threshold();
  const T scale = static_cast<T>(d.scale());
  const RandomKey key = d.current();
  const std::int64_t skip = static_cast<std::int64_t>(first & 3);
  for (std::int64_t i = 0; i < n + skip; i += kPhiloxElements) {
    alignas(64) std::uint32_t words[kPhiloxElements];
    random_words(key, (first + static_cast<std::uint64_t>(i)) >> 2, words);
#pragma omp simd
    for (int j = 0; j < kPhiloxElements; ++j) buffer[i + j] = words[j] >= threshold ? scale : T{0};
    if (d.jitter > 0)
      for (int j = 0; j < kPhiloxElements; ++j) buffer[i + j] = static_cast<T>(d.factor(words[j]));
  }
  return buffer + skip;
}

}  // namespace tfm::kernels
