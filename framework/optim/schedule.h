#pragma once
// Learning rate as a pure function of the optimizer step, which is counted from 1.
#include <cstdint>

#include "config/config.h"

namespace tfm::optim {

struct Schedule {
  config::ScheduleType type = config::ScheduleType::constant;
  double lr = 0, min_lr = 0;  // the rate does not decay below min_lr
  std::int64_t warmup = 0;    // number of steps with rate lr * step / warmup, except for noam
  std::int64_t total = 0;     // step at which linear and cosine reach min_lr
  std::int64_t decay = 0;  // wsd: the rate falls linearly to min_lr in the last `decay` of `total`
  // noam: lr * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5) (Vaswani et al. 2017 with lr 1).
  std::int64_t d_model = 0;

  double at(std::int64_t step) const;
  double peak() const;
  // Whether the rates depend on `total`.
  bool ends() const {
    using enum config::ScheduleType;
    return type == linear || type == cosine || type == wsd;
  }
};

}  // namespace tfm::optim
