#include "launch/bench/peak.h"

#include <algorithm>
#include <chrono>

#include "core/strings.h"
#include "launch/bench/rates.h"
#include "launch/support/automatic.h"
#include "launch/support/device_choice.h"
#include "plan/step_plan.h"

namespace tfm::launch {
namespace {

using Clock = std::chrono::steady_clock;

// Other processes take turns on the cores: many short products find one that none interrupts.
constexpr double kTries = 0.015;  // seconds of products of one size
constexpr int kLeastTries = 4;
constexpr double kAll = 0.1;  // seconds after which no larger size follows
constexpr std::int64_t kSmallest = 256, kLargest = 1024;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Rate {
  double flops = 0;
  std::int64_t size = 0;
};

// The highest of all sizes and tries.
Rate best_rate(device::Device& device, DType type) {
  Rate best;
  const auto first = Clock::now();
  for (std::int64_t n = kSmallest; n <= kLargest; n *= 2) {
    const double rate = product_rate(device, type, n, [&](const auto& product) {
      product();
      const auto start = Clock::now();
      double least = 0;
      for (int i = 0; i < kLeastTries || seconds_since(start) < kTries; ++i) {
        const auto begin = Clock::now();
        product();
        const double seconds = seconds_since(begin);
        least = i == 0 ? seconds : std::min(least, seconds);
      }
      return least;
    });
    if (rate > best.flops) best = {rate, n};
    if (seconds_since(first) > kAll) break;
  }
  return best;
}

std::string tera(double flops) { return printed("%.3g TFLOP/s", flops * 1e-12); }

void measure_peak(const Launch& launch, config::Precision precision, train::Machine& machine) {
  device::Device device = device::Device::cpu(launch.threads());
  launch.gather("");  // all measure at once
  const Rate mine = best_rate(device, plan::dtype_of(precision));
  for (const double rate :
       launch.gather(mine.flops * share_of_cores(launch.cores.together, launch.threads(),
                                                 launch.ranks_per_node())))
    machine.peak_flops += rate;
  machine.peak_from = "measured: products of " + std::to_string(mine.size) + " x " +
                      std::to_string(mine.size) + " in " + config::word(precision) + " on " +
                      counted(launch.ranks, "rank") + " of " + counted(launch.threads(), "thread");
}

}  // namespace

double share_of_cores(int cores, int threads, int ranks) {
  return std::min(1.0, static_cast<double>(cores) / (threads * ranks));
}

void set_peak(const Launch& launch, const config::Config& config, train::Machine& machine) {
  const DType type = plan::dtype_of(config.precision);
  if (config.device == config::DeviceKind::cuda) {
    const plan::DeviceModel gpu = device_model(launch, config);
    double gpus = 0;  // that the ranks have, some of them perhaps together
    for (const RankGpus& of : gpus_of_ranks(launch))
      gpus += std::min(1.0, static_cast<double>(of.gpus) / of.ranks);
    machine.peak_flops = gpu.rates(type).peak * gpus;
    machine.peak_from = "datasheet: " + tera(gpu.rates(type).peak) + " of " + gpu.name +
                        ", times " + printed("%g", gpus);
    if (machine.peak_flops == 0) {
      machine.notes.push_back("MFU is unknown: no table has the peak of " + gpu.name);
      return;
    }
  } else {
    measure_peak(launch, config.precision, machine);
  }
  machine.notes.push_back("MFU is of a peak of " + tera(machine.peak_flops) + " (" +
                          machine.peak_from + ")");
}

}  // namespace tfm::launch
