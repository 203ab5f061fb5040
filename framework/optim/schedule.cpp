#include "optim/schedule.h"

#include <algorithm>
#include <cmath>

namespace tfm::optim {

double Schedule::at(std::int64_t step) const {
  using config::ScheduleType;
  const auto s = static_cast<double>(step), w = static_cast<double>(warmup);
  if (type == ScheduleType::noam) {
    const double rise = warmup > 0 ? s * std::pow(w, -1.5) : s,
                 rate = lr / std::sqrt(static_cast<double>(d_model)) *
                        std::min(1 / std::sqrt(s), rise);
    return step > warmup ? std::max(min_lr, rate) : rate;
  }
  if (step <= warmup) return lr * s / w;
  const auto between = [&](double begin, double end) {
    return std::clamp((s - begin) / std::max(end - begin, 1.0), 0.0, 1.0);
  };
  switch (type) {
    case ScheduleType::linear:
      return lr + (min_lr - lr) * between(w, static_cast<double>(total));
    case ScheduleType::cosine:
      return min_lr +
             0.5 * (lr - min_lr) *
                 (1 + std::cos(3.141592653589793 * between(w, static_cast<double>(total))));
    case ScheduleType::inverse_sqrt:
      return std::max(min_lr, warmup > 0 ? lr * std::sqrt(w / s) : lr / std::sqrt(s));
    case ScheduleType::wsd:
      return lr + (min_lr - lr) *
                      between(static_cast<double>(total - decay), static_cast<double>(total));
    case ScheduleType::constant:
    case ScheduleType::noam:
      break;
  }
  return lr;
}

double Schedule::peak() const {
  return type == config::ScheduleType::noam ? at(std::max<std::int64_t>(1, warmup)) : lr;
}

}  // namespace tfm::optim
