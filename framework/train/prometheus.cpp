// metrics.listen: metrics of the run for Prometheus.
#include <algorithm>

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
    if (run.logged()) server_->other(others(run));
  }

  void during_evaluation(TrainingRun&) override {
    if (server_) server_->alive();
  }

  void after_evaluation(TrainingRun& run, const EvaluationResult& evaluated) override {
    if (!server_) return;
    for (const config::Metric metric : run.config.eval.metrics)
      server_->eval("validation", config::word(metric), evaluated.values.at(metric));
  }

  void after_checkpoint(TrainingRun& run, const WrittenCheckpoint& saved) override {
    if (!server_) return;
    server_->alive();
    saved.result.ok() ? server_->checkpoint(run.step) : server_->checkpoint_failed();
  }

 private:
  using Family = telemetry::MetricFamily;

  std::vector<Family> others(const TrainingRun& run) const {
    std::vector<Family> all{starts_};
    if (run.engine.plan().dtype == DType::f16)
      all.push_back(
          {"tfm_loss_scale", "Factor of the loss in fp16.", false, {{{}, run.result.loss_scale}}});
    const RankTimes& times = *run.rank_times;
    const auto labels = [&](int rank) {
      return std::map<std::string, std::string>{{"rank", std::to_string(rank)},
                                                {"host", times.host(rank)}};
    };
    Family phases{"tfm_phase_seconds_total", "Time of steps by phase.", true, {}},
        collectives{"tfm_collective_seconds_total",
                    "Time in collectives, waiting for other ranks included.",
                    true,
                    {}};
    for (int rank = 0; rank < times.ranks(); ++rank) {
      auto of = labels(rank);
      for (const auto& [phase, seconds] : times.phases(rank))
        of["phase"] = phase, phases.values.emplace_back(of, seconds);
      of.erase("phase");
      for (const auto& [axes, seconds] : times.collectives(rank))
        of["axis"] = axes, collectives.values.emplace_back(of, seconds);
    }
    all.push_back(std::move(phases));
    all.push_back(std::move(collectives));
    if (const auto straggler = times.straggler())
      all.push_back({"tfm_straggler_seconds",
                     "How much less time of a step than the median rank the rank with the least "
                     "spent in collectives.",
                     false,
                     {{labels(straggler->rank), straggler->seconds}}});
    return all;
  }

  void open(TrainingRun& run) {
    const config::ModelConfig& model = run.config.model;
    const comm::Layout& layout = run.mesh.layout;
    server_ = telemetry::MetricsServer::create(
        {.listen = run.config.metrics.listen,
         .health_seconds =
             std::max(telemetry::MetricsServerOptions{}.health_seconds, run.file_timeout()),
         .build = {{"version", std::string(version)}},
         .run = {{"model", model.preset.empty() ? config::word(model.family) : model.preset},
                 {"layout", layout.str("", "_")}}});
    if (!server_) return;
    starts_ = {"tfm_resumed_step",
               "Step that this start of the run resumed from; 0: the first.",
               false,
               {{{}, static_cast<double>(run.step)}}};
    for (const auto& [kind, bytes] : run.engine.memory_taken().categories)
      server_->memory(kind, bytes);
    say("metrics at " + server_->url());
    if (server_->is_public())
      warn("metrics.listen " + run.config.metrics.listen + " is reachable from other machines");
  }

  std::unique_ptr<telemetry::MetricsServer> server_;
  Family starts_;
};

}  // namespace

std::unique_ptr<Observer> serve_metrics() { return std::make_unique<MetricsServer>(); }

}  // namespace tfm::train
