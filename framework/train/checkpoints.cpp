// Checkpoints of a run in progress.
#include <chrono>

#include "checkpoint/lock.h"
#include "inference/text_format.h"
#include "train/engine_state.h"
#include "train/observers.h"
#include "train/replicas.h"

namespace tfm::train {
namespace {

using Clock = std::chrono::steady_clock;

class Checkpoints final : public Observer {
 public:
  explicit Checkpoints(TrainingRun& run) {
    const std::string dir = run.config.checkpoint.directory();
    if (dir.empty() || !run.lead()) return;
    lock_.emplace(dir);
    checkpoint::clean(dir);
  }

  bool needs_engine(const TrainingRun& run) const override {
    const config::CheckpointConfig& c = run.config.checkpoint;
    return !c.directory().empty() && (run.due(c.every) || run.last());
  }

  void after_step(TrainingRun& run) override {
    const config::CheckpointConfig& c = run.config.checkpoint;
    if (!needs_engine(run) && (c.directory().empty() || !run.save)) return;
    TFM_CHECK(!run.ahead,
              "needs_engine() says before a step that its checkpoint will be asked for");
    run.expect_files();
    const auto start = Clock::now();
    check_replicas(run.engine, "step " + std::to_string(run.step));
    config::Config config = run.config;
    config.model.init = "random";  // a checkpoint has weights of its own
    const comm::Layout& layout = run.mesh.layout;
    const checkpoint::CheckpointInfo info{.step = run.step,
                                          .updates = run.engine.updates(),
                                          .samples_seen = run.step * config.train.batch_size(),
                                          .evaluation_due = run.evaluation_due,
                                          .data_tokens = run.data.tokens,
                                          .seed = config.train.seed,
                                          .layout = layout.sizes(),
                                          .config = config::dump_config(config),
                                          .directory = inference::directory_of(config.data),
                                          .init = run.init,
                                          .tokenizer = run.data.tokenizer_fingerprint,
                                          .extra = run.provenance,
                                          .loss_scale = run.engine.loss_scale(),
                                          .best = run.best};
    const std::vector<checkpoint::Chunk> pieces = checkpoint_chunks(run.engine);
    // Weights that give NaN or Inf may be of no use: no earlier ones are removed for them.
    const std::int64_t keep = run.nonfinite() ? 0 : c.keep;
    const checkpoint::CheckpointResult result = checkpoint::write_checkpoint(
        c.dir, info, pieces, keep, checkpoint::checkpoint_ranks(run.mesh.world()));
    error_ = result.error;
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    run.time_left.add_checkpoint(run.step, seconds);
    run.tell(&Observer::after_checkpoint, WrittenCheckpoint{result, seconds});
  }

  void at_end(TrainingRun&) override {
    if (!error_.empty())
      throw Error(ExitCode::retryable,
                  "cannot write the last checkpoint: " + error_ +
                      "; free disk space and restart: the run resumes from the latest complete "
                      "checkpoint");
  }

 private:
  std::optional<checkpoint::RunLock> lock_;  // held until the run ends
  std::string error_;                        // of the last checkpoint
};

}  // namespace

std::unique_ptr<Observer> write_checkpoints(TrainingRun& run) {
  return std::make_unique<Checkpoints>(run);
}

}  // namespace tfm::train
