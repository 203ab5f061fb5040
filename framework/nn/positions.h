#pragma once
// Position encodings: ALiBi slopes, relative buckets, rotary frequencies and sinusoidal tables.
#include <cstdint>
#include <vector>

namespace tfm::nn {

// ALiBi slopes 2^(-8h/H), h = 1..H, if H is a power of two. Otherwise those of the next lower power
// of two, then every second slope of the next higher one, as in the paper's code (Press et al.
// 2022).
std::vector<double> alibi_slopes(std::int64_t heads);
// T5's relative position buckets (Raffel et al. 2020): [s - t + queries - 1] is the bucket of
// distance s - t. Bidirectional: keys after the query use the upper half of the buckets, others the
// lower half. Otherwise keys after the query share bucket 0. The first half of a direction's
// buckets hold one distance each; the rest grow logarithmically up to max_distance, and the last
// one holds all beyond.
std::vector<std::int32_t> relative_buckets(std::int64_t queries, std::int64_t keys,
                                           std::int64_t buckets, std::int64_t max_distance,
                                           bool bidirectional);
// Rotary positions of the first R columns of heads.
struct Rotary {
  std::vector<double> frequency;  // (R/2); empty: none
  // For sequences of more than original_length positions; empty: as above.
  std::vector<double> long_frequency = {};
  std::int64_t original_length = 0;
  double factor = 1;  // of the columns that turn
  const std::vector<double>& frequencies(std::int64_t length) const {
    return long_frequency.empty() || length <= original_length ? frequency : long_frequency;
  }
};
// Writes the table PE (length, width), row-major (Vaswani et al. 2017): PE[p, 2i] = sin(x) and
// PE[p, 2i+1] = cos(x), x = p / 10000^(2i/width). halves: all sines before all cosines. last:
// so, with x = p / 10000^(2i/(width - 2)), so that the last frequency is 1/10000 (Tensor2Tensor,
// Vaswani et al. 2018).
enum class SinusoidKind : std::uint8_t { interleaved, halves, last };
template <class T>
void sinusoidal_table(std::int64_t length, std::int64_t width, SinusoidKind kind, T* out);

}  // namespace tfm::nn
