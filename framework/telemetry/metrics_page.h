#pragma once
// What a MetricsServer knows of a run, and the page of it.
#include <array>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "telemetry/metrics_server.h"
#include "telemetry/unix_time.h"

namespace tfm::telemetry {

// Upper ends of the buckets of step times, in seconds.
inline constexpr std::array kStepBuckets{0.01, 0.025, 0.05, 0.1,  0.25, 0.5,  1.0,
                                         2.5,  5.0,   10.0, 30.0, 60.0, 300.0};

// Who reads the metrics.
struct Client {
  std::chrono::steady_clock::time_point last;
  double interval = 0;  // seconds between the last two reads; 0: there was one
};
inline constexpr std::size_t kMostClients = 64;  // that are remembered

struct Snapshot {
  std::optional<StepMetrics> last;
  double steps = 0, tokens = 0, checkpoint_failures = 0, nonfinite = 0;
  std::vector<double> durations = std::vector<double>(kStepBuckets.size() + 1);
  double duration_sum = 0;
  std::map<std::string, double> memory;
  std::vector<MetricFamily> other;
  double seconds_left = 0;
  std::optional<std::chrono::steady_clock::time_point> end;
  std::map<std::string, Client> clients;                      // by address and program
  std::map<std::string, std::map<std::string, double>> eval;  // by metric, by split
  std::optional<std::int64_t> checkpoint_step;
  double step_time = 0, progress_time = unix_time(), checkpoint_time = 0;  // Unix time
  std::chrono::steady_clock::time_point alive = std::chrono::steady_clock::now();
};

std::string page_of(const MetricsServerOptions& options, const Snapshot& snapshot);

}  // namespace tfm::telemetry
