// Counts steps that were skipped for a loss or gradient of NaN or Inf; ends the run after several
// in a row, and warns at the end of one whose last steps were skipped.
#include "telemetry/progress.h"
#include "train/observers.h"

namespace tfm::train {
namespace {

constexpr int kAllowed = 3;  // in a row

class NonfiniteSteps final : public Observer {
 public:
  // The step that may end the run ends it with nothing under way.
  bool needs_engine(const TrainingRun&) const override { return skipped_ >= kAllowed; }

  void after_step(TrainingRun& run) override {
    const StepResult& r = run.result;
    skipped_ = r.applied ? 0 : skipped_ + 1;
    if (r.applied) return;
    const optim::LossScale& scale = run.engine.loss_scale();
    const std::string step = "step " + std::to_string(run.step) + ": ";
    if (run.lead())
      warn(step + "loss " + printed("%.6g", r.loss) + ", gradient norm " +
           printed("%.6g", r.grad_norm) + "; update skipped" +
           (scale.dynamic ? ", loss scale now " + telemetry::count_text(scale.value) : ""));
    if (skipped_ > kAllowed && run.nonfinite()) throw Error(ExitCode::numerical, what(run));
  }

  void at_end(TrainingRun& run) override {
    if (skipped_ > 0 && run.nonfinite() && run.lead()) warn(what(run));
  }

 private:
  std::string what(const TrainingRun& run) const {
    const std::string dir = run.config.checkpoint.directory();
    return "step " + std::to_string(run.step) +
           ": the loss or gradient norm was NaN or infinite in " +
           (skipped_ == 1 ? "1 step" : std::to_string(skipped_) + " consecutive steps") +
           "; lower optimizer.lr, raise schedule.warmup_steps or inspect the data" +
           (dir.empty()
                ? ""
                : "; weights of shortly before may be of no use, too: checkpoint.resume takes an "
                  "earlier checkpoint in " +
                      dir);
  }

  int skipped_ = 0;  // in a row
};

}  // namespace

std::unique_ptr<Observer> watch_nonfinite_steps() { return std::make_unique<NonfiniteSteps>(); }

}  // namespace tfm::train
