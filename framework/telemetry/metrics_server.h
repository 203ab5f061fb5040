#pragma once
// Serves the run as Prometheus text over HTTP: GET /metrics, and GET /healthz, which answers 200
// while steps and evaluations advance and 503 otherwise. The training loop only stores numbers
// under a mutex; all formatting happens in the server's threads.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tfm::telemetry {

struct MetricsServerOptions {
  std::string listen;  // "host:port" or "[v6]:port"; port 0: any free one
  // /healthz fails once the last progress, or the start, is longer ago.
  double health_seconds = 600;
  std::map<std::string, std::string> build;  // labels of tfm_build_info: version, ...
  std::string name;                          // of the run: a label of every metric
  std::map<std::string, std::string> run;    // labels of tfm_run_info: model, layout, ...
  std::int64_t steps = 0;                    // planned
};

struct StepMetrics {
  std::int64_t step = 0;
  std::int64_t tokens = 0;  // of this step
  double tokens_per_second = 0, loss = 0, grad_norm = 0, lr = 0, seconds = 0;
  std::optional<double> mfu;  // nullopt: the device's peak is unknown
};

// One metric with its labels, in Prometheus' terms.
struct MetricFamily {
  std::string name, help;
  bool counter = false;  // a total, which only grows; otherwise a gauge
  std::vector<std::pair<std::map<std::string, std::string>, double>> values;  // by labels
};

class MetricsServer {
 public:
  // Null if `listen` is empty. Error(usage) if it is malformed, Error(environment) if the address
  // is not available.
  static std::unique_ptr<MetricsServer> create(const MetricsServerOptions& options);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  void step(const StepMetrics& metrics);
  void seconds_left(double estimate);  // until the run ends
  void alive();                        // reports progress between two steps
  void eval(const std::string& split, const std::string& metric, double value);  // tfm_eval_METRIC
  void checkpoint(std::int64_t step);  // a checkpoint was written
  void checkpoint_failed();
  void nonfinite_step();
  // `kind`: parameters, gradients, optimizer, activations, ...
  void memory(const std::string& kind, std::int64_t bytes);
  void other(std::vector<MetricFamily> families);  // replaces the previous ones

  // The run has ended as planned or on request.
  void end();
  // Seconds until all who read the metrics at intervals should have read that; 0: they have, or
  // nobody does.
  double seconds_to_last_read() const;

  int port() const;
  std::string url() const;  // "http://127.0.0.1:9750/metrics"
  bool is_public() const;   // listens on an address other than a loopback one

 private:
  struct Impl;
  explicit MetricsServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tfm::telemetry
