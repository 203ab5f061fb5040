#pragma once
// Learning rate as a pure function of the step, counted from 1.
#include <cstdint>
#include <string>

namespace tfm::optim {

struct Schedule {
  enum class Kind : std::uint8_t {
    constant,
    linear,
    cosine,
    noam,
    inverse_sqrt,
    wsd
  } kind = Kind::constant;
  double lr = 0, min_lr = 0;  // no decay goes below min_lr
  std::int64_t warmup =
      0;  // steps; the rate rises as lr * step / warmup (noam and inverse_sqrt have their own rise)
  std::int64_t total = 0;    // step at which linear and cosine reach min_lr
  std::int64_t decay = 0;    // wsd: the last `decay` of `total` steps fall linearly to min_lr
  std::int64_t d_model = 0;  // noam: lr * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5)
                             // (Vaswani et al. 2017 with lr 1)

  double at(std::int64_t step) const;
};

}  // namespace tfm::optim
