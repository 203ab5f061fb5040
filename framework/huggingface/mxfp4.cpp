#include "huggingface/mxfp4.h"

#include <cmath>

namespace tfm::huggingface {

void decode_mxfp4(const std::byte* blocks, const std::byte* scales, std::int64_t first,
                  std::int64_t count, float* to) {
  // A sign, two bits of exponent, one of mantissa.
  static constexpr float kFourBits[] = {0,     0.5F,  1,     1.5F,  2,     3,     4,     6,
                                        -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};
  for (std::int64_t i = first; i < first + count; ++i) {
    const auto both = static_cast<unsigned>(blocks[i / 2]);
    const int exponent = static_cast<int>(scales[i / kScaledTogether]) - 127;
    *to++ = std::ldexp(kFourBits[i % 2 == 0 ? both & 15 : both >> 4], exponent);
  }
}

}  // namespace tfm::huggingface
