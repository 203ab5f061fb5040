#include "telemetry/metrics_page.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <sstream>

namespace tfm::telemetry {
namespace {

// One scrape's registry, filled from a snapshot.
class Page {
 public:
  explicit Page(const std::string& run) : run_{{"run", run}} {}
  void gauge(const std::string& name, const std::string& help, double value,
             const prometheus::Labels& labels = {}) {
    prometheus::BuildGauge().Name(name).Help(help).Labels(run_).Register(registry_).Add(labels).Set(
        value);
  }
  void counter(const std::string& name, const std::string& help, double value,
               const prometheus::Labels& labels = {}) {
    prometheus::BuildCounter()
        .Name(name)
        .Help(help)
        .Labels(run_)
        .Register(registry_)
        .Add(labels)
        .Increment(value);
  }
  void histogram(const char* name, const char* help, const std::vector<double>& counts,
                 double sum) {
    prometheus::BuildHistogram()
        .Name(name)
        .Help(help)
        .Labels(run_)
        .Register(registry_)
        .Add({}, prometheus::Histogram::BucketBoundaries(kStepBuckets.begin(), kStepBuckets.end()))
        .ObserveMultiple(counts, sum);
  }
  std::string text() const {
    std::ostringstream out;
    prometheus::TextSerializer().Serialize(out, registry_.Collect());
    return out.str();
  }

 private:
  prometheus::Labels run_;
  prometheus::Registry registry_;
};

}  // namespace

std::string page_of(const MetricsServerOptions& options, const Snapshot& s) {
  Page page(options.name);
  page.gauge("tfm_build_info", "Build information; always 1.", 1, options.build);
  page.gauge("tfm_run_info", "Run information; always 1.", 1, options.run);
  page.gauge("tfm_planned_steps", "Optimizer steps of the whole run (train.steps).",
             static_cast<double>(options.steps));
  page.gauge("tfm_run_ended", "1 once the run has ended as planned or on request; 0 before.",
             s.end ? 1 : 0);
  if (s.last) {
    page.gauge("tfm_step", "Last completed optimizer step.", static_cast<double>(s.last->step));
    page.gauge("tfm_tokens_per_second", "Tokens per second in the last step.",
               s.last->tokens_per_second);
    if (s.last->mfu)
      page.gauge("tfm_mfu_ratio", "Model FLOPs utilization of the last step, 0 to 1.",
                 *s.last->mfu);
    page.gauge("tfm_loss", "Training loss of the last step.", s.last->loss);
    page.gauge("tfm_grad_norm", "Gradient norm of the last step, before clipping.",
               s.last->grad_norm);
    page.gauge("tfm_learning_rate", "Learning rate of the last step.", s.last->lr);
    page.gauge("tfm_last_step_timestamp_seconds", "Unix time at which the last step ended.",
               s.step_time);
    page.gauge("tfm_eta_seconds",
               "Estimated time until the end, of remaining evaluations and checkpoints, too.",
               s.seconds_left);
  }
  page.gauge("tfm_last_progress_timestamp_seconds",
             "Unix time of the start, or at which the last step or batch of an evaluation ended.",
             s.progress_time);
  page.counter("tfm_steps_total", "Optimizer steps since the program started.", s.steps);
  page.counter("tfm_tokens_total", "Tokens trained on since the program started.", s.tokens);
  page.histogram("tfm_step_duration_seconds", "Wall-clock time of a step.", s.durations,
                 s.duration_sum);
  for (const auto& [metric, values] : s.eval)
    for (const auto& [split, value] : values)
      page.gauge("tfm_eval_" + metric, "Result of the last evaluation.", value, {{"split", split}});
  if (s.checkpoint_step) {
    page.gauge("tfm_last_checkpoint_step", "Step of the last checkpoint.",
               static_cast<double>(*s.checkpoint_step));
    page.gauge("tfm_last_checkpoint_timestamp_seconds", "Unix time of the last checkpoint.",
               s.checkpoint_time);
  }
  page.counter("tfm_checkpoint_failures_total", "Checkpoints that could not be written.",
               s.checkpoint_failures);
  page.counter("tfm_nonfinite_steps_total",
               "Steps skipped because the loss or gradient was NaN or infinite.", s.nonfinite);
  for (const auto& [kind, bytes] : s.memory)
    page.gauge("tfm_memory_bytes", "Memory of a rank by category.", bytes, {{"kind", kind}});
  for (const MetricFamily& f : s.other)
    for (const auto& [labels, value] : f.values)
      f.counter ? page.counter(f.name, f.help, value, labels)
                : page.gauge(f.name, f.help, value, labels);
  return page.text();
}

}  // namespace tfm::telemetry
