#pragma once
// A run in progress, and its observers.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "comm/watchdog.h"
#include "data/run_data.h"
#include "train/expert_load.h"
#include "train/rank_times.h"
#include "train/time_left.h"

namespace tfm::train {

class Observer;

// The host of rank 0, for comparing runs.
struct HostFacts {
  std::string cpu;  // model; empty: not known
  int ranks = 1, threads = 1;
  int cores = 1;                // that its ranks may run on
  bool oversubscribed = false;  // on some host of the run, ranks have more threads than cores
};

// What is known of a run and its machine before it starts.
struct Machine {
  HostFacts host;
  std::vector<std::string> notes;  // lines of the log after the first
  double peak_flops = 0;           // of all ranks together; 0: unknown
  std::string peak_from;           // a table, or a measurement
};

// What the trainer and its observers share. Every rank has one; its contents are the same on all
// ranks, except for the engine's and what is this rank's.
struct TrainingRun {
  config::Config config;
  comm::Mesh mesh;
  data::RunData data;
  Engine engine;
  comm::Watchdog watchdog;
  std::vector<std::unique_ptr<Observer>> observers;  // notified in this order

  std::int64_t step = 0;  // the last one done; at the start the one resumed from, or 0
  bool ahead = false;     // the next step is launched: the engine's weights may be of either
  StepResult result;      // of that step
  double lr = 0;          // of that step
  // Seconds of that step; with steps launched ahead, from the end of one to the end of the next.
  double seconds = 0;
  double flops = 0;   // of that step's products, on all ranks
  StepPhases phases;  // of these seconds on this rank; on a GPU: data and the rest
  std::optional<RankTimes> rank_times;  // with metrics.listen, as of the last step logged
  ExpertLoad expert_load;               // of the last step logged
  TimeLeft time_left;
  Machine machine;
  std::int64_t planned_bytes = 0;        // the most of any rank; of the last plan
  std::int64_t arena_bytes = 0;          // the most that any rank took; set at the end
  std::string provenance = "{}";         // where the first weights came from, for checkpoints
  std::string init;                      // their model.init; empty: random
  std::optional<checkpoint::Best> best;  // best evaluation so far, with eval.stop

  // Set by observers after a step:
  bool save = false;            // write a checkpoint of this step
  bool stop_requested = false;  // requested from outside the run
  bool no_improvement = false;  // eval.stop says that training is over
  bool evaluation_due = false;  // this step's evaluation was abandoned for a stop request

  TrainingRun(const config::Config& config, const comm::Mesh& mesh, const device::Device& device);

  // Names of the terms of the loss, where there are several; else empty.
  std::vector<std::string> terms() const;
  // "loss_classify" and the like, of each of several terms.
  std::vector<std::pair<std::string, double>> term_losses(const inference::Totals& totals) const;
  // In evaluations, which have the terms of heads only, with their accuracy.
  std::vector<std::pair<std::string, double>> term_metrics(const inference::Totals& totals) const;

  bool lead() const { return mesh.rank() == 0; }
  bool last() const { return step == config.train.steps; }
  bool over() const { return step >= config.train.steps || stop_requested || no_improvement; }
  // Whether something that happens every `every` steps (0: never) is due after this step.
  bool due(std::int64_t every) const { return every > 0 && step % every == 0; }
  bool logged() const { return due(config.metrics.log_every) || last(); }
  // Whether this step was skipped for NaN or Inf other than of a loss scale that was too large.
  bool nonfinite() const;
  double tokens_per_second() const { return static_cast<double>(result.tokens) / seconds; }
  // Model FLOPs utilization; nullopt if the peak is unknown.
  std::optional<double> mfu() const {
    return machine.peak_flops > 0 ? std::optional(flops / seconds / machine.peak_flops)
                                  : std::nullopt;
  }
  double seconds_left() const { return time_left.after(step); }
  // Seconds that ranks may wait for each other where files are read and written.
  double file_timeout() const;
  void expect_files() { watchdog.set_timeout(file_timeout()); }

  bool needs_engine() const;  // whether any observer does, after this step

  // Tells every observer: run.tell(&Observer::after_step).
  template <class... Event, class... Args>
  void tell(void (Observer::*event)(TrainingRun&, Event...), Args&&... args) {
    for (const auto& observer : observers) (observer.get()->*event)(*this, args...);
  }
};

struct EvaluationResult {  // of the validation data
  std::map<config::Metric, double> values;
  std::int64_t tokens = 0;  // labels of the first term
  inference::Totals terms;  // by the names of TrainingRun::terms()
  double seconds = 0;
};

struct WrittenCheckpoint {
  const checkpoint::CheckpointResult& result;
  double seconds = 0;
};

// Notified on every rank; events are ignored by default. An observer may communicate, so all ranks
// have the same ones in the same order, except those that only write on rank 0.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_start(TrainingRun&) {}  // weights are set, no step is done yet
  // Whether after_step() of the step being computed looks at more than its result: at the engine's
  // state, so that the next step may not be launched before. The same on all ranks.
  virtual bool needs_engine(const TrainingRun&) const { return false; }
  virtual void after_step(TrainingRun&) {}
  virtual void after_replan(TrainingRun&) {}  // before after_step(): Engine::replans() has grown
  virtual void during_evaluation(TrainingRun&) {}  // after a batch; may set stop_requested
  // Told by the observers that evaluate and that write checkpoints, from within their on_start() or
  // after_step().
  virtual void after_evaluation(TrainingRun&, const EvaluationResult&) {}
  virtual void after_checkpoint(TrainingRun&, const WrittenCheckpoint&) {}
  virtual void at_end(TrainingRun&) {}  // not if an error ends the run
};

// Of the process; on a GPU of the device memory that the plan lists.
std::int64_t peak_memory_bytes(const TrainingRun& run);
void say(const std::string& text);  // prints on standard output at once; for rank 0
void warn(const std::string& text);

}  // namespace tfm::train
