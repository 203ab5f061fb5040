// metrics.jsonl: one line per event.
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "core/strings.h"
#include "core/version.h"
#include "plan/live_memory.h"
#include "telemetry/metrics_log.h"
#include "telemetry/unix_time.h"
#include "train/observers.h"

namespace tfm::train {
namespace {

using Json = nlohmann::ordered_json;
using telemetry::MetricsLine;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();  // null
constexpr std::size_t kLoads = 256;                                    // of experts
constexpr std::size_t kMemoryPoints = 240;  // of the activations' memory over a step

// Those of a step by operation, axis and size.
Json collectives_json(const plan::StepPlan& plan) {
  std::map<std::tuple<std::string, std::string, std::int64_t>, std::int64_t> counts;
  for (const comm::CollectiveCall& c : plan.collectives())
    ++counts[{comm::name_of(c.axes), std::string(comm::name_of(c.kind)), c.bytes}];
  Json all = Json::array();
  for (const auto& [use, count] : counts) {
    const auto& [axes, op, bytes] = use;
    all.push_back({{"op", op}, {"axis", axes}, {"bytes", bytes}, {"count", count}});
  }
  return all;
}

// The most bytes of activations in use in each of up to kMemoryPoints equal parts of a step's
// instructions, and the part in which the backward pass begins.
Json activations_json(const graph::Program& program) {
  const std::vector<std::int64_t> bytes = plan::live_bytes(program);
  const std::size_t n = bytes.size(), parts = std::min(n, kMemoryPoints);
  Json most = Json::array();
  for (std::size_t i = 0; i < parts; ++i)
    most.push_back(
        *std::max_element(bytes.begin() + static_cast<std::ptrdiff_t>(i * n / parts),
                          bytes.begin() + static_cast<std::ptrdiff_t>((i + 1) * n / parts)));
  const auto backward = static_cast<std::size_t>(
      std::ranges::find_if(program.instructions(),
                           [](const auto& s) { return s.phase == graph::Phase::backward; }) -
      program.instructions().begin());
  return {{"instructions", n}, {"backward", n ? backward * parts / n : 0}, {"bytes", most}};
}

std::string host_json(const TrainingRun& run) {
  const HostFacts& host = run.machine.host;
  return Json{{"cpu", host.cpu.empty() ? Json() : Json(host.cpu)},
              {"device", run.engine.plan().on_host() ? "cpu" : "cuda"},
              {"ranks", host.ranks},
              {"threads", host.threads},
              {"cores", host.cores},
              {"oversubscribed", host.oversubscribed}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string phases_json(const StepPhases& phases) {
  std::string json;
  for (const auto& [name, seconds] : phases)
    json += (json.empty() ? "\"" : ",\"") + std::string(name) + "\":" + number_text(seconds);
  return "{" + json + "}";
}

// So that lines have kLoads of them on average, at most: every so manieth logged step.
bool has_loads(const TrainingRun& run) {
  std::size_t experts = 0;
  for (const ExpertLoad::Layer& l : run.expert_load.layers()) experts += l.loads.size();
  const auto every = static_cast<std::int64_t>(ceil_div(experts, kLoads));
  return experts > 0 &&
         (run.step / std::max<std::int64_t>(run.config.metrics.log_every, 1) % every == 0 ||
          run.last());
}

std::string loads_json(const ExpertLoad& load) {
  Json all = Json::object();
  for (const ExpertLoad::Layer& l : load.layers()) {
    Json& loads = all[l.name] = Json::array();
    for (const double x : l.loads) loads.push_back(std::round(x * 1000) / 1000);
  }
  return all.dump();
}

class MetricsFile final : public Observer {
 public:
  void on_start(TrainingRun& run) override {
    const std::string& path = run.config.metrics.jsonl;
    try {
      if (!path.empty())
        file_.emplace(path, run.step > 0 ? std::optional(run.step) : std::nullopt,
                      run.evaluation_due);
    } catch (const std::exception& e) {
      warn(std::string("metrics.jsonl: metrics are not written: ") + e.what());
    }
    if (!file_) return;
    if (!file_->old().empty()) say("metrics of an earlier run are kept as " + file_->old());
    const comm::Layout& layout = run.mesh.layout;
    const plan::StepPlan& plan = run.engine.plan();
    MetricsLine start("start");
    start.add("config", config::dump_config(run.config))
        .add("run", run.config.run.name)
        .add("parameters", run.engine.model().parameters().trained_elements())
        .add("world", layout.world())
        .add_json("layout", Json(layout.sizes()).dump())
        .add("planned_bytes", run.planned_bytes)
        .add("resumed_step", run.step)
        .add("version", version)
        .add("time", telemetry::unix_time())
        .add_json("host", host_json(run))
        .add_json("memory", Json(run.engine.memory_taken().categories).dump())
        .add_json("activations", activations_json(plan.largest().train_program).dump())
        .add_json("collectives", collectives_json(plan).dump());
    if (plan.shapes.size() == 1)
      start.add("rank_flops_per_step", plan.matmul_flops()).add("flops_per_step", run.flops);
    if (const Machine& m = run.machine; m.peak_flops > 0)
      start.add("peak_flops", m.peak_flops).add("peak_from", m.peak_from);
    write(start);
  }

  void after_replan(TrainingRun& run) override {
    write(MetricsLine("replan")
              .add("step", run.step)
              .add("replans", run.engine.replans())
              .add("expert_bound", run.engine.plan().config.parallel.expert_bound)
              .add("planned_bytes", run.planned_bytes)
              .add("time", telemetry::unix_time()));
  }

  void after_step(TrainingRun& run) override {
    if (!run.logged()) return;
    const StepResult& r = run.result;
    MetricsLine line("step");
    line.add("step", run.step).add("loss", r.loss);
    for (const auto& [name, loss] : run.term_losses(r.terms)) line.add(name, loss);
    if (const ExpertLoad& load = run.expert_load; !load.layers().empty())
      line.add("busiest_expert", load.most())
          .add("busiest_expert_rank", load.busiest_rank())
          .add("router_entropy", load.entropy());
    if (has_loads(run)) line.add_json("expert_load", loads_json(run.expert_load));
    write(line.add("grad_norm", r.grad_norm)
              .add("lr", run.lr)
              .add("tokens", r.tokens)
              .add("tokens_per_second", run.tokens_per_second())
              .add("step_seconds", run.seconds)
              .add("mfu", run.mfu().value_or(kUnknown))
              .add("loss_scale", r.loss_scale)
              .add("peak_memory_bytes", peak_memory_bytes(run))
              .add_json("phases", phases_json(run.phases))
              .add("time", telemetry::unix_time()));
  }

  void after_evaluation(TrainingRun& run, const EvaluationResult& evaluated) override {
    MetricsLine line("eval");
    line.add("step", run.step).add("split", "validation");
    for (const config::Metric metric : run.config.eval.metrics)
      line.add(config::word(metric), evaluated.values.at(metric));
    for (const auto& [name, value] : run.term_metrics(evaluated.terms)) line.add(name, value);
    write(line.add("tokens", evaluated.tokens)
              .add("seconds", evaluated.seconds)
              .add("time", telemetry::unix_time()));
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
    write(end.add("time", telemetry::unix_time()));
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
