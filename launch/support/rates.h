#pragma once
// Timing of kernels, and the rates of the device at hand.
#include <algorithm>
#include <chrono>

#include "device/device.h"
#include "tensor/tensor.h"
#include "train/device_model.h"

namespace tfm {

// Seconds of one run of f, which gives work to the device's stream: the best of `samples` samples of at least 20 ms each.
template <class F> double best_seconds(Device& device, F&& f, int samples = 5) {
  using Clock = std::chrono::steady_clock;
  const auto run = [&](int times) {
    const auto start = Clock::now();
    for (int i = 0; i < times; ++i) f();
    wait(device.stream());
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  run(1);
  const int times = std::clamp(static_cast<int>(0.02 / std::max(1e-7, run(1))), 1, 10000);
  double best = run(times);
  for (int i = 1; i < samples; ++i) best = std::min(best, run(times));
  return best / times;
}

// Memory of the device, filled with numbers between -1 and 1.
class Operand {
 public:
  Operand(Device& device, DType type, std::int64_t elements);
  template <class T> T* ptr() const { return reinterpret_cast<T*>(memory_.get()); }

 private:
  std::shared_ptr<std::byte> memory_;
};

struct MeasuredRates {
  double product = 0, attention = 0;  // FLOP/s of large matrix products and of causal attention, head size 64
  double bandwidth = 0;               // bytes/s of a copy
};
MeasuredRates measure_rates(Device& device, DType type);

}  // namespace tfm
