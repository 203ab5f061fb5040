#pragma once
// The line that a run prints for a step:
//   step 1200/20000 6.0% | loss 3.2145 | gnorm 0.83 | lr 3.00e-04 | 412.3k tok/s | 41.7% MFU |
//   mem 61.2 GiB | 318 ms | eta 1h39m
#include <cstdint>
#include <optional>
#include <string>

namespace tfm::telemetry {

struct ProgressSample {
  std::int64_t step = 0, steps = 0;
  double loss = 0, grad_norm = 0, lr = 0;
  double tokens_per_second = 0;
  std::optional<double> mfu;      // 0 to 1; nullopt: the device's peak is unknown
  std::int64_t memory_bytes = 0;  // of one rank
  double step_seconds = 0, seconds_left = 0;
};

// Without a line break.
std::string step_line(const ProgressSample& sample);
// "[#####-----] 600/1200 | loss 3.2145 | 412.3k tok/s | eta 1h39m"
std::string step_bar(const ProgressSample& sample);

std::string count_text(double value);       // 953, 412.3k, 1.7M
std::string duration_text(double seconds);  // 45s, 12m03s, 1h39m, 3d04h
std::string bytes_text(double bytes);       // 953 B, 1.5 GiB

}  // namespace tfm::telemetry
