#pragma once
// Numbers that encode positions: slopes, buckets, frequencies and tables.
#include <cstdint>
#include <vector>

namespace tfm::nn {

// ALiBi slopes 2^(-8h/H), h = 1..H; for other H the rule of the paper's code: those of the closest
// lower power of two, then every second one of the next power (Press et al. 2022).
std::vector<double> alibi_slopes(std::int64_t heads);
// T5's bucket of every distance s - t at [s - t + queries - 1] (Raffel et al. 2020). Bidirectional:
// half of the buckets for each sign, keys after the query in the upper half; otherwise those share
// bucket 0. Of a sign's buckets the first half hold one distance each, the rest grow as the
// logarithm up to max_distance, and the last holds everything beyond.
std::vector<std::int32_t> relative_buckets(std::int64_t queries, std::int64_t keys,
                                           std::int64_t buckets, std::int64_t max_distance,
                                           bool bidirectional);
// theta^(-2i/D) for i < D/2, with Llama 3's scaling where factor != 1.
struct RotaryScaling {
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;
  std::int64_t original_length = 8192;
};
std::vector<double> rotary_frequencies(std::int64_t head_size, double theta,
                                       const RotaryScaling& scaling);
// PE[p, 2i] = sin(p / 10000^(2i/C)), PE[p, 2i+1] = cos(...) (Vaswani et al. 2017), (length, width)
// row-major. halves: all sines before all cosines.
template <class T>
void sinusoidal_table(std::int64_t length, std::int64_t width, bool halves, T* out);

}  // namespace tfm::nn
