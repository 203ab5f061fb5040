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
// Rotary frequencies theta^(-2i/D), i < D/2, with Llama 3's scaling if factor != 1.
struct RotaryScaling {
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;
  std::int64_t original_length = 8192;
};
std::vector<double> rotary_frequencies(std::int64_t head_size, double theta,
                                       const RotaryScaling& scaling);
// Writes the table PE (length, width), row-major (Vaswani et al. 2017): PE[p, 2i] = sin(x) and
// PE[p, 2i+1] = cos(x), x = p / 10000^(2i/width). halves: all sines before all cosines.
template <class T>
void sinusoidal_table(std::int64_t length, std::int64_t width, bool halves, T* out);

}  // namespace tfm::nn
