#pragma once
// Dynamic loss scaling for fp16 (Micikevicius et al. 2018), with the rules and constants of
// torch.amp.GradScaler: a gradient that is not finite halves the scale and skips the update;
// kInterval consecutive updates double it. The scale is a power of two, so scaling itself rounds
// nothing.
#include <cstdint>

namespace tfm::optim {

struct LossScale {
  static constexpr std::int64_t kInterval = 2000;
  static constexpr double kFirst = 65536;

  double value = 1;
  std::int64_t updates = 0;  // applied since the scale last changed
  bool dynamic = false;

  static LossScale of_fp16() { return {.value = kFirst, .dynamic = true}; }
  void update(bool applied) {
    if (!dynamic) return;
    if (!applied)
      value /= 2, updates = 0;
    else if (++updates == kInterval)
      value *= 2, updates = 0;
  }
};

}  // namespace tfm::optim
