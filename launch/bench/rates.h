#pragma once
// Times kernels and measures the rates of the device at hand.
#include <algorithm>
#include <functional>

#include "core/dtype.h"
#include "device/device.h"
#include "device/timed.h"
#include "plan/device_model.h"

namespace tfm::launch {

// Seconds of one run: the best of `samples` samples of at least 20 ms each, after a warm-up run.
// run(n) returns the seconds of n runs.
template <class Run>
double best_of(Run&& run, int samples = 5) {
  run(1);
  const int times = std::clamp(static_cast<int>(0.02 / std::max(1e-7, run(1))), 1, 10000);
  double best = run(times);
  for (int i = 1; i < samples; ++i) best = std::min(best, run(times));
  return best / times;
}

// Seconds of f, which enqueues work on the device's stream.
template <class F>
double best_seconds(device::Device& device, F&& f, int samples = 5) {
  const auto run = [&](int times) {
    double seconds = 0;
    device::timed(device.stream(), &seconds, [&] {
      for (int i = 0; i < times; ++i) f();
    });
    return seconds;
  };
  return best_of(run, samples);
}

// FLOP/s that grow with a size, as its description has them: the time of a FLOP is (1 + half /
// size) / rate.
struct Growth {
  double rate, half;
};
// From the FLOP/s at two sizes.
Growth growth(std::int64_t small, double slow, std::int64_t large, double fast);

// Measures the seconds of a piece of work.
using SecondsOf = std::function<double(const std::function<void()>& work)>;
// FLOP/s of a product of two n x n matrices.
double product_rate(device::Device& device, DType type, std::int64_t n, const SecondsOf& seconds);
double product_rate(device::Device& device, DType type);  // of large matrices
// FLOP/s of products and of causal attention on elements of `type`; the peak is that of large
// products.
plan::DeviceModel::Rates measure_rates(device::Device& device, DType type);
double measure_bandwidth(device::Device& device);  // bytes/s of a copy
// Measures one of this machine's `cores` while ranks of `threads` threads each share them, in fp32
// and in `precision`. What is not measured, launches and links, is taken from the reference core.
plan::DeviceModel measure_core(int cores, int ranks, int threads, config::Precision precision);
// Measures the GPU at hand. What is not measured is taken from `known`; peaks that it lacks are the
// rates of products.
plan::DeviceModel measure_gpu(device::Device& device, const plan::DeviceModel& known);

}  // namespace tfm::launch
