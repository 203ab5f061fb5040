#include "kernels/normals.h"

#include <algorithm>
#include <array>

#include "kernels/cpu/philox_simd.h"

namespace tfm::kernels {
namespace {

using Doubles = Vec<double>;

// Sum of c[i] x^i.
template <std::size_t N>
TFM_INLINE inline Doubles polynomial(const std::array<double, N>& c, Doubles x) {
  Doubles sum = Doubles{} + c[N - 1];
#pragma GCC unroll 16
  for (std::size_t i = 1; i < N; ++i) sum = sum * x + c[N - 1 - i];
  return sum;
}

// Taylor series of functions of x^2: 1/(2i+1) of artanh(x)/x; (-1)^i/(2i+1)! of sin(x)/x; and
// (-1)^i/(2i)! of cos(x).
constexpr auto kArtanh = [] {
  std::array<double, 12> c{};
  for (std::size_t i = 0; i < c.size(); ++i) c[i] = 1.0 / static_cast<double>(2 * i + 1);
  return c;
}();
template <std::size_t First>
constexpr auto kCircular = [] {
  std::array<double, 9> c{};
  double factorial = 1;
  for (std::size_t i = 0; i < c.size(); ++i) {
    c[i] = (i % 2 ? -1 : 1) / factorial;
    factorial *= static_cast<double>((2 * i + First + 1) * (2 * i + First + 2));
  }
  return c;
}();

TFM_INLINE inline Doubles to_double(Words small) {  // below 2^52
  return (Doubles)(small | 0x4330000000000000u) - 0x1p52;
}

// -log((word + 1) / 2^32): of 2^e m with m between 1/sqrt(2) and sqrt(2).
TFM_INLINE inline Doubles minus_log(Words word) {
  const Words bits = (Words)to_double(word + 1);
  Doubles exponent = to_double(bits >> 52) - (1023 + 32),
          m = (Doubles)((bits & 0x000FFFFFFFFFFFFFu) | 0x3FF0000000000000u);
  const auto large = m > splat(1.4142135623730951);
  m = large ? m * 0.5 : m;
  exponent = large ? exponent + 1.0 : exponent;
  const Doubles x = (m - 1.0) / (m + 1.0);
  return -0.6931471805599453 * exponent - 2.0 * x * polynomial(kArtanh, x * x);
}

struct Circular {
  Doubles cos, sin;
};

// Of the angle 2 pi word / 2^32 in double, less the nearest multiple of pi/2, which is subtracted
// in two parts: products of the first with 0 to 4 are exact.
TFM_INLINE inline Circular circular(Words word) {
  const Words quarter = (word + (1u << 29)) >> 30;
  const Doubles quarters = to_double(quarter),
                angle = 6.283185307179586 * (to_double(word) * 0x1p-32),
                x = (angle - quarters * 0x1.921fb54442dp0) - quarters * 0x1.8469898cc5170p-48,
                square = x * x, sin = x * polynomial(kCircular<1>, square),
                cos = polynomial(kCircular<0>, square);
  const auto odd = (quarter & 1) != 0;
  const Words minus_cos = ((quarter + 1) & 2) << 62, minus_sin = (quarter & 2) << 62;
  return {(Doubles)((Words)(odd ? sin : cos) ^ minus_cos),
          (Doubles)((Words)(odd ? cos : sin) ^ minus_sin)};
}

// Of the blocks from `block` on.
void normal_numbers(const RandomKey& key, std::uint64_t block, float* out) {
  const std::array<Words, 4> words = random_blocks(key, block);
  for (int pair = 0; pair < 4; pair += 2) {
    const Doubles radius = sqrt(2.0 * minus_log(words[pair]));
    const Circular at = circular(words[pair + 1]);
    const Doubles first = radius * at.cos, second = radius * at.sin;
    for (int i = 0; i < kLanes<double>; ++i) {
      out[4 * i + pair] = static_cast<float>(first[i]);
      out[4 * i + pair + 1] = static_cast<float>(second[i]);
    }
  }
}

}  // namespace

template <class T>
void normals(const RandomKey& key, std::uint64_t first, std::int64_t n, float deviation, T* out) {
  for (std::int64_t i = -static_cast<std::int64_t>(first & 3); i < n; i += kPhiloxElements) {
    float z[kPhiloxElements];
    normal_numbers(key, (first + static_cast<std::uint64_t>(i)) >> 2, z);
    const std::int64_t begin = std::max<std::int64_t>(i, 0),
                       end = std::min<std::int64_t>(i + kPhiloxElements, n);
    for (std::int64_t k = begin; k < end; ++k) out[k] = z[k - i] * deviation;
  }
}

template void normals(const RandomKey&, std::uint64_t, std::int64_t, float, float*);
template void normals(const RandomKey&, std::uint64_t, std::int64_t, float, double*);

}  // namespace tfm::kernels
