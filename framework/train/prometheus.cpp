// metrics.listen: metrics of the run for Prometheus.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/strings.h"
#include "core/version.h"
#include "telemetry/metrics_server.h"
#include "train/observers.h"

namespace tfm::train {
namespace {

constexpr double kLongestWait = 60;    // seconds, for the last read of the metrics
constexpr double kWaitOnRequest = 10;  // where the run was asked to stop

class MetricsServer final : public Observer {
 public:
  ~MetricsServer() override {
    if (server_ && ended_) wait_for_last_read();
  }

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
    server_->seconds_left(run.seconds_left());
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
    for (const auto& [name, value] : run.term_metrics(evaluated.terms))
      server_->eval("validation", name, value);
    server_->seconds_left(run.seconds_left());
  }

  void after_checkpoint(TrainingRun& run, const WrittenCheckpoint& saved) override {
    if (!server_) return;
    server_->alive();
    saved.result.ok() ? server_->checkpoint(run.step) : server_->checkpoint_failed();
    server_->seconds_left(run.seconds_left());
  }

  void at_end(TrainingRun& run) override {
    if (!server_) return;
    server_->end();
    ended_ = true;
    longest_wait_ = run.stop_requested ? kWaitOnRequest : kLongestWait;
  }

 private:
  // So that a Prometheus sees that the run ended: what it does not see any more may have crashed.
  void wait_for_last_read() {
    const auto start = std::chrono::steady_clock::now();
    const auto waited = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    const double wait = std::min(server_->seconds_to_last_read(), longest_wait_);
    if (wait > 1)
      say(printed("serving metrics until they are read once more, for up to %.0f s", wait));
    sigset_t pending;  // a request to stop, which nothing takes any more
    while (server_->seconds_to_last_read() > 0 && waited() < longest_wait_ &&
           !(sigpending(&pending) == 0 && sigismember(&pending, SIGTERM) == 1))
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }

  using Family = telemetry::MetricFamily;

  static void add_load(const TrainingRun& run, std::vector<Family>& all) {
    if (run.expert_load.layers().empty()) return;
    Family busiest{"tfm_busiest_expert_ratio", "Load of the busiest expert, even: 1.", false, {}},
        idlest{"tfm_idlest_expert_ratio", "Load of the least busy expert, even: 1.", false, {}},
        rank{"tfm_busiest_expert_rank_ratio", "Rows of the rank with most, even: 1.", false, {}},
        entropy{"tfm_router_entropy_nats",
                "Entropy of a token's probabilities of experts, the mean.",
                false,
                {}};
    for (const ExpertLoad::Layer& l : run.expert_load.layers()) {
      const std::map<std::string, std::string> labels{{"layer", l.name}};
      busiest.values.emplace_back(labels, l.most());
      idlest.values.emplace_back(labels, *std::ranges::min_element(l.loads));
      rank.values.emplace_back(labels, l.busiest_rank);
      entropy.values.emplace_back(labels, l.entropy);
    }
    for (Family& f : {std::ref(busiest), std::ref(idlest), std::ref(rank), std::ref(entropy)})
      all.push_back(std::move(f));
  }

  std::vector<Family> others(const TrainingRun& run) const {
    std::vector<Family> all{starts_};
    if (run.engine.plan().dtype == DType::f16)
      all.push_back(
          {"tfm_loss_scale", "Factor of the loss in fp16.", false, {{{}, run.result.loss_scale}}});
    if (run.mesh.layout.size(nn::kExpertAxes) > 1)
      all.push_back({"tfm_replans_total",
                     "Plans made anew with more room for rows of experts.",
                     true,
                     {{{}, static_cast<double>(run.engine.replans())}}});
    for (const auto& [name, loss] : run.term_losses(run.result.terms))
      all.push_back({"tfm_" + name,
                     "A term of the training loss of the last logged step.",
                     false,
                     {{{}, loss}}});
    add_load(run, all);
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
         .name = run.config.run.name,
         .run = {{"model", model.preset.empty() ? config::word(model.family) : model.preset},
                 {"layout", layout.str("", "_")}},
         .steps = run.config.train.steps});
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
  bool ended_ = false;
  double longest_wait_ = 0;
  Family starts_;
};

}  // namespace

std::unique_ptr<Observer> serve_metrics() { return std::make_unique<MetricsServer>(); }

}  // namespace tfm::train
