// metrics.jsonl: one line per event.
#include "telemetry/metrics_log.h"
#include "train/observers.h"

namespace tfm::train {
namespace {

using telemetry::MetricsLine;

class MetricsFile final : public Observer {
 public:
  void on_start(TrainingRun& run) override {
    const std::string& path = run.config.metrics.jsonl;
    try {
      if (!path.empty()) file_.emplace(path, run.step > 0 ? std::optional(run.step) : std::nullopt);
    } catch (const std::exception& e) {
      warn(std::string("metrics.jsonl: metrics are not written: ") + e.what());
    }
    const comm::Layout& layout = run.mesh.layout;
    write(MetricsLine("start")
              .add("config", config::dump_config(run.config))
              .add("parameters", run.engine.model().parameters().total_elements())
              .add("world", layout.world())
              .add_json("layout", "{\"" + layout.str("\":", ",\"") + "}")
              .add("planned_bytes", run.planned_bytes)
              .add("resumed_step", run.step));
  }

  void after_step(TrainingRun& run) override {
    if (!run.due(run.config.metrics.log_every) && !run.last()) return;
    const StepResult& r = run.result;
    write(MetricsLine("step")
              .add("step", run.step)
              .add("loss", r.loss)
              .add("grad_norm", r.grad_norm)
              .add("lr", run.lr)
              .add("tokens", r.tokens)
              .add("tokens_per_second", run.tokens_per_second())
              .add("step_seconds", run.seconds)
              .add_null("mfu")
              .add("loss_scale", r.loss_scale)
              .add("peak_memory_bytes", peak_memory_bytes()));
  }

  void after_evaluation(TrainingRun& run, const EvaluationResult& evaluated) override {
    MetricsLine line("eval");
    line.add("step", run.step).add("split", "validation");
    for (const config::Metric metric : run.config.eval.metrics)
      line.add(config::word(metric), evaluated.values.at(metric));
    write(line.add("tokens", evaluated.tokens));
  }

  void after_checkpoint(TrainingRun& run, const WrittenCheckpoint& saved) override {
    if (!saved.result.ok()) return;
    write(MetricsLine("checkpoint")
              .add("step", run.step)
              .add("seconds", saved.seconds)
              .add("path", saved.result.path));
  }

  void at_end(TrainingRun& run) override {
    MetricsLine end("end");
    end.add("step", run.step).add("arena_high_water_bytes", run.arena_bytes);
    end.add("reason", run.no_improvement   ? "no_improvement"
                      : run.stop_requested ? "request"
                                           : "steps");
    if (run.best && run.best->step >= 0)
      end.add("best_step", run.best->step)
          .add("best_" + config::word(run.best->metric), run.best->value);
    write(end);
  }

 private:
  void write(const MetricsLine& line) {
    if (!file_) return;
    if (const std::string why = file_->write(line); !why.empty())
      warn("metrics are not written: " + why);
  }

  std::optional<telemetry::MetricsLog> file_;
};

}  // namespace

std::unique_ptr<Observer> write_metrics() { return std::make_unique<MetricsFile>(); }

}  // namespace tfm::train
