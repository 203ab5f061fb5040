// metrics.listen: metrics of the run for Prometheus.
#include "core/version.h"
#include "telemetry/metrics_server.h"
#include "train/observers.h"

namespace tfm::train {
namespace {

class MetricsServer final : public Observer {
 public:
  void on_start(TrainingRun& run) override {
    try {
      open(run);
    } catch (const std::exception& e) {
      warn(std::string("metrics are not served: ") + e.what());
    }
  }

  void after_step(TrainingRun& run) override {
    if (!server_) return;
    const StepResult& r = run.result;
    server_->step({run.step, r.tokens, run.tokens_per_second(), r.loss, r.grad_norm, run.lr,
                   run.seconds, run.mfu()});
    if (!r.applied) server_->nonfinite_step();
  }

  void after_evaluation(TrainingRun& run, const EvaluationResult& evaluated) override {
    if (!server_) return;
    for (const config::Metric metric : run.config.eval.metrics)
      server_->eval("validation", config::word(metric), evaluated.values.at(metric));
  }

  void after_checkpoint(TrainingRun& run, const WrittenCheckpoint& saved) override {
    if (!server_) return;
    saved.result.ok() ? server_->checkpoint(run.step) : server_->checkpoint_failed();
  }

 private:
  void open(TrainingRun& run) {
    const config::ModelConfig& model = run.config.model;
    const comm::Layout& layout = run.mesh.layout;
    server_ = telemetry::MetricsServer::create(
        {.listen = run.config.metrics.listen,
         .build = {{"version", std::string(version)}},
         .run = {{"model", model.preset.empty() ? config::word(model.family) : model.preset},
                 {"layout", layout.str("", "_")}}});
    if (!server_) return;
    for (const auto& [kind, bytes] : run.engine.memory_taken().categories)
      server_->memory(kind, bytes);
    say("metrics at " + server_->url());
    if (server_->is_public())
      warn("metrics.listen " + run.config.metrics.listen + " is reachable from other machines");
  }

  std::unique_ptr<telemetry::MetricsServer> server_;
};

}  // namespace

std::unique_ptr<Observer> serve_metrics() { return std::make_unique<MetricsServer>(); }

}  // namespace tfm::train
