#include "nn/positions.h"

#include <algorithm>
#include <cmath>

#include "core/dtype.h"
#include "core/error.h"

namespace tfm::nn {

std::vector<double> alibi_slopes(std::int64_t heads) {
  const auto power_of_two = [](std::int64_t n) {
    std::vector<double> s;
    for (std::int64_t h = 1; h <= n; ++h)
      s.push_back(std::exp2(-8.0 * static_cast<double>(h) / static_cast<double>(n)));
    return s;
  };
  std::int64_t lower = 1;
  while (2 * lower <= heads) lower *= 2;
  std::vector<double> slopes = power_of_two(lower);
  const std::vector<double> next = power_of_two(2 * lower);
  for (std::size_t i = 0; static_cast<std::int64_t>(slopes.size()) < heads; i += 2)
    slopes.push_back(next[i]);
  return slopes;
}

std::vector<std::int32_t> relative_buckets(std::int64_t queries, std::int64_t keys,
                                           std::int64_t buckets, std::int64_t max_distance,
                                           bool bidirectional) {
  const std::int64_t of_sign = bidirectional ? buckets / 2 : buckets, exact = of_sign / 2;
  TFM_CHECK(exact > 0 && max_distance > exact,
            std::to_string(buckets) + " buckets cannot reach " + std::to_string(max_distance));
  const auto whole =
      static_cast<float>(std::log(static_cast<double>(max_distance) / static_cast<double>(exact)));
  std::vector<std::int32_t> out;
  for (std::int64_t distance = 1 - queries; distance < keys; ++distance) {
    const std::int64_t n =
        bidirectional ? std::abs(distance) : std::max<std::int64_t>(-distance, 0);
    std::int64_t bucket = n;
    if (n >= exact) {  // in fp32, as T5 rounds where a bucket ends
      const float part = std::log(static_cast<float>(n) / static_cast<float>(exact)) / whole *
                         static_cast<float>(of_sign - exact);
      bucket = std::min(exact + static_cast<std::int64_t>(part), of_sign - 1);
    }
    out.push_back(
        static_cast<std::int32_t>(bucket + (bidirectional && distance > 0 ? of_sign : 0)));
  }
  return out;
}

template <class T>
void sinusoidal_table(std::int64_t length, std::int64_t width, SinusoidKind kind, T* out) {
  const std::int64_t span =
      kind == SinusoidKind::last ? std::max<std::int64_t>(width - 2, 1) : width;
  for (std::int64_t p = 0; p < length; ++p)
    for (std::int64_t c = 0; c < width; ++c) {
      const double angle =
          static_cast<double>(p) *
          std::pow(10000.0, -static_cast<double>(c / 2 * 2) / static_cast<double>(span));
      const std::int64_t at =
          kind == SinusoidKind::interleaved ? c : c / 2 + c % 2 * ceil_div(width, 2);
      out[p * width + at] =
          static_cast<T>(static_cast<Accum<T>>(c % 2 ? std::cos(angle) : std::sin(angle)));
    }
}
template void sinusoidal_table(std::int64_t, std::int64_t, SinusoidKind, float*);
template void sinusoidal_table(std::int64_t, std::int64_t, SinusoidKind, double*);
template void sinusoidal_table(std::int64_t, std::int64_t, SinusoidKind, bf16*);
template void sinusoidal_table(std::int64_t, std::int64_t, SinusoidKind, f16*);

}  // namespace tfm::nn
