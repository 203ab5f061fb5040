// Progress on standard output.

#include "core/strings.h"
#include "kernels/instructions.h"
#include "telemetry/live_line.h"
#include "telemetry/progress.h"
#include "train/observers.h"

namespace tfm::train {
namespace {

std::string listed(const std::vector<std::pair<std::string, double>>& numbers) {
  std::string text;
  for (const auto& [name, value] : numbers) text += " | " + name + printed(" %.4f", value);
  return text;
}

std::string load_text(const TrainingRun& run) {
  const ExpertLoad& load = run.expert_load;
  if (load.layers().empty()) return "";
  std::string text = printed(" | busiest expert x%.2f", load.most());
  if (run.mesh.layout.size(nn::kExpertAxes) > 1)
    text += printed(" | busiest rank x%.2f", load.busiest_rank());
  return text;
}

// What the ranks compute on and how they exchange.
std::string place_of(TrainingRun& run) {
  const HostFacts& host = run.machine.host;
  const std::string precision = config::word(run.config.precision);
  if (!run.engine.device().is_cpu()) {
    const std::string by = comm::transport_of(run.engine.rank_context().tensors);
    return "device cuda: " + run.engine.device().description() + ", " + precision +
           (by.empty() ? "" : ", ranks exchange by " + by);
  }
  std::string text = "device cpu, " + counted(host.threads, "thread") + " per rank, " +
                     kernels::instructions(run.engine.plan().dtype) + ", " + precision;
  const int ranks = run.mesh.layout.world();
  if (ranks > 1)
    text += host.ranks == ranks ? ", ranks exchange by shared memory"
            : host.ranks == 1   ? ", ranks exchange by MPI"
                                : ", ranks exchange by shared memory and, between hosts, MPI";
  return text;
}

// What raising train.steps does to a schedule that ends with it.
std::string jump_with_more_steps(const TrainingRun& run) {
  config::Config longer = run.config;
  longer.train.steps *= 2;
  const optim::Schedule rates = plan::schedule_of(run.config);
  const double last = rates.at(run.step), next = plan::schedule_of(longer).at(run.step + 1);
  if (!rates.ends() || next == last) return "";
  return ", but schedule " + config::word(run.config.schedule.type) +
         " ends with train.steps: with twice as many the learning rate would go from " +
         number_text(last) + " to " + number_text(next) +
         " at once (schedule.type constant and a small optimizer.lr continue evenly)";
}

class ConsoleLog final : public Observer {
 public:
  ~ConsoleLog() override { telemetry::clear_live_line(); }

  void on_start(TrainingRun& run) override {
    const plan::ShapePlan& largest = run.engine.plan().largest();
    const comm::Layout& layout = run.mesh.layout;
    say("tfm: " +
        telemetry::count_text(
            static_cast<double>(run.engine.model().parameters().trained_elements())) +
        " parameters, " + std::to_string(layout.world()) + " ranks (" + layout.str() + "), " +
        telemetry::count_text(static_cast<double>(largest.batch * largest.shape.length)) +
        " tokens per step, " + std::to_string(run.planned_bytes >> 20) + " MiB per rank, " +
        telemetry::count_text(static_cast<double>(run.data.tokens)) + " training tokens");
    say(place_of(run));
    for (const std::string& note : run.machine.notes) say(note);
    for (const std::string& note : run.data.notes) say(note);
    const std::int64_t steps = run.config.train.steps;
    if (run.step >= steps)
      say("step " + std::to_string(run.step) + " of " + std::to_string(steps) +
          " is done; raise train.steps to continue training" + jump_with_more_steps(run));
  }

  void after_replan(TrainingRun& run) override {
    say("step " + std::to_string(run.step) +
        ": a rank had no room for all rows that came to its experts; the step was repeated with "
        "parallel.expert_bound " +
        printed("%.2f", run.engine.plan().config.parallel.expert_bound) + ", " +
        std::to_string(run.planned_bytes >> 20) + " MiB per rank");
  }

  void after_step(TrainingRun& run) override {
    const StepResult& r = run.result;
    const telemetry::ProgressSample sample{
        run.step,    run.config.train.steps,  r.loss,    r.grad_norm,
        run.lr,      run.tokens_per_second(), run.mfu(), peak_memory_bytes(run),
        run.seconds, run.seconds_left()};
    if (run.logged())
      say(telemetry::step_line(sample) + listed(run.term_losses(r.terms)) + load_text(run));
    telemetry::set_live_line(telemetry::step_bar(sample));
  }

  void after_evaluation(TrainingRun& run, const EvaluationResult& evaluated) override {
    std::string text = "validation at step " + std::to_string(run.step);
    for (const config::Metric metric : run.config.eval.metrics)
      text += " | " + config::word(metric) + printed(" %.4f", evaluated.values.at(metric));
    say(text + listed(run.term_metrics(evaluated.terms)) + " | " +
        std::to_string(evaluated.tokens) + " tokens");
  }

  void after_checkpoint(TrainingRun& run, const WrittenCheckpoint& saved) override {
    const checkpoint::CheckpointResult& r = saved.result;
    if (!r.warning.empty()) warn(r.warning);
    if (!r.ok())
      return warn("cannot write the checkpoint of step " + std::to_string(run.step) + ": " +
                  r.error + "; training continues, earlier checkpoints are intact");
    say("checkpoint " + r.path + " | " + std::to_string(r.bytes >> 20) + " MiB in " +
        telemetry::duration_text(saved.seconds));
  }
};

}  // namespace

std::unique_ptr<Observer> print_log() { return std::make_unique<ConsoleLog>(); }

}  // namespace tfm::train
