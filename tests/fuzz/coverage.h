#pragma once
// How often each step from one block of code to the next was taken. All zeros where the code is
// built without instrumentation.
#include <cstddef>
#include <cstdint>

namespace tfm::fuzz {

inline constexpr std::size_t kPlaces = 1 << 16;
extern std::uint8_t reached[kPlaces];  // saturating counts, by a hash of the step
extern bool coverage;                  // some code is instrumented

}  // namespace tfm::fuzz
