// eval.stop: ends a run whose metric stops improving.
#include "core/strings.h"
#include "train/observers.h"

namespace tfm::train {
namespace {

class EarlyStopping final : public Observer {
 public:
  void on_start(TrainingRun& run) override {
    look(run);
  }  // a resumed run that had stopped early stops again

  void after_evaluation(TrainingRun& run, const EvaluationResult& evaluated) override {
    if (!run.best) return;
    run.save |= run.best->improve(run.step, evaluated.values.at(run.best->metric));
    look(run);
    run.save |= run.no_improvement;
  }

  void at_end(TrainingRun& run) override {
    if (!run.no_improvement || !run.lead()) return;
    const checkpoint::Best& best = *run.best;
    say("early stop at step " + std::to_string(run.step) + ": " + std::to_string(best.since) +
        " evaluations of " + config::word(best.metric) +
        (best.step < 0 ? " without a finite value"
                       : " without improvement on the best, " + number_text(best.value) +
                             " at step " + std::to_string(best.step)) +
        "; raise eval.stop.patience to continue");
  }

 private:
  static void look(TrainingRun& run) {
    run.no_improvement = run.best && run.best->since >= run.config.eval.stop->patience;
  }
};

}  // namespace

std::unique_ptr<Observer> stop_early(TrainingRun& run) {
  if (run.config.eval.stop && !run.best) run.best = {.metric = run.config.eval.stop->metric};
  return std::make_unique<EarlyStopping>();
}

}  // namespace tfm::train
