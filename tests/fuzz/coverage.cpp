#include "coverage.h"

namespace tfm::fuzz {
std::uint8_t reached[kPlaces];
bool coverage = false;
}  // namespace tfm::fuzz

// What a compiler inserts into every block of code with -fsanitize-coverage=trace-pc. The address
// is taken relative to this function, so that it does not depend on where the program is loaded.
extern "C" void __sanitizer_cov_trace_pc() {
  static thread_local std::uintptr_t previous = 0;
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0)) -
                    reinterpret_cast<std::uintptr_t>(&__sanitizer_cov_trace_pc);
  const std::uintptr_t mixed = here * 0x9E3779B97F4A7C15u >> 32;
  std::uint8_t& count = tfm::fuzz::reached[(mixed ^ previous) % tfm::fuzz::kPlaces];
  if (count < 255) ++count;
  previous = mixed >> 1;
  tfm::fuzz::coverage = true;
}
