// metrics.tensorboard: event files.
#include "telemetry/event_file.h"
#include "train/observers.h"

namespace tfm::train {
namespace {

using telemetry::Scalar;

class TensorBoard final : public Observer {
 public:
  void on_start(TrainingRun& run) override {
    const std::string& directory = run.config.metrics.tensorboard;
    if (directory.empty()) return;
    try {
      file_.emplace(directory, run.step + 1);
    } catch (const std::exception& e) {
      return warn(std::string("metrics.tensorboard: no events are written: ") + e.what());
    }
    check(file_->add_text(run.step, "configuration",
                          "```yaml\n" + config::dump_config(run.config) + "```\n"));
  }

  void after_step(TrainingRun& run) override {
    if (!run.logged()) return;
    const StepResult& r = run.result;
    std::vector<Scalar> scalars{{"train/loss", r.loss},
                                {"train/grad_norm", r.grad_norm},
                                {"train/lr", run.lr},
                                {"train/tokens_per_second", run.tokens_per_second()},
                                {"train/step_seconds", run.seconds}};
    for (const auto& [name, loss] : run.term_losses(r.terms))
      scalars.emplace_back("train/" + name, loss);
    if (const ExpertLoad& load = run.expert_load; !load.layers().empty()) {
      scalars.emplace_back("experts/busiest_expert", load.most());
      scalars.emplace_back("experts/busiest_expert_rank", load.busiest_rank());
      scalars.emplace_back("experts/router_entropy", load.entropy());
    }
    if (const auto mfu = run.mfu()) scalars.emplace_back("train/mfu", *mfu);
    if (run.engine.loss_scale().dynamic) scalars.emplace_back("train/loss_scale", r.loss_scale);
    for (const auto& [phase, seconds] : run.phases)
      scalars.emplace_back("seconds/" + std::string(phase), seconds);
    add(run.step, scalars);
  }

  void after_evaluation(TrainingRun& run, const EvaluationResult& evaluated) override {
    std::vector<Scalar> scalars;
    for (const config::Metric metric : run.config.eval.metrics)
      scalars.emplace_back("validation/" + config::word(metric), evaluated.values.at(metric));
    for (const auto& [name, value] : run.term_metrics(evaluated.terms))
      scalars.emplace_back("validation/" + name, value);
    add(run.step, scalars);
  }

 private:
  void add(std::int64_t step, const std::vector<Scalar>& scalars) {
    if (file_) check(file_->add(step, scalars));
  }

  // The first failure is the last: the rest of the file would have gaps.
  void check(const std::string& why) {
    if (why.empty()) return;
    warn("metrics.tensorboard: no more events are written: " + why);
    file_.reset();
  }

  std::optional<telemetry::EventFile> file_;
};

}  // namespace

std::unique_ptr<Observer> write_tensorboard() { return std::make_unique<TensorBoard>(); }

}  // namespace tfm::train
