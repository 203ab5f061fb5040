#pragma once
// A run in progress, and those that watch it.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "comm/watchdog.h"
#include "data/run_data.h"
#include "train/rank_times.h"

namespace tfm::train {

class Observer;

// The host of rank 0, for those who compare runs.
struct HostFacts {
  std::string cpu;  // model; empty: not known
  int ranks = 1, threads = 1;
  int cores = 1;                // that its ranks may run on
  bool oversubscribed = false;  // on some host of the run, ranks have more threads than cores
};

// What is known of a run and its machine before it starts.
struct Machine {
  HostFacts host;
  std::vector<std::string> notes;  // lines that follow the first one
  double peak_flops = 0;           // of all ranks together; 0: unknown
  std::string peak_from;           // a table, or a measurement
};

// What the trainer and its observers share. Every rank has one; what is in it is the same on all,
// except for what the engine holds.
struct TrainingRun {
  config::Config config;
  comm::Mesh mesh;
  data::RunData data;
  Engine engine;
  comm::Watchdog watchdog;
  std::vector<std::unique_ptr<Observer>> observers;  // told of each event in this order

  std::int64_t step = 0;  // the last one done; at the start the one resumed from, or 0
  bool ahead = false;     // the step after that is launched: the engine's weights may be of either
  StepResult result;      // of that step
  double lr = 0;          // of that step
  double seconds = 0;     // of that step; with the next one launched ahead, from end to end
  double flops = 0;       // of that step's products, on all ranks
  StepPhases phases;      // of these seconds on this rank; on a GPU data and the rest
  std::optional<RankTimes> rank_times;  // with metrics.listen, as of the last step to be logged
  Machine machine;
  std::int64_t planned_bytes = 0;        // the most of all ranks
  std::int64_t arena_bytes = 0;          // at the end: the most that any rank took
  std::string origin = "{}";             // where the first weights came from, for checkpoints
  std::optional<checkpoint::Best> best;  // evaluation so far, with eval.stop

  // Set by observers after a step:
  bool save = false;            // write a checkpoint of this step
  bool stop_requested = false;  // from outside
  bool no_improvement = false;  // eval.stop says that training is over
  bool evaluation_due = false;  // of this step; it was given up for a request to stop

  TrainingRun(const config::Config& config, const comm::Mesh& mesh, const device::Device& device);

  bool lead() const { return mesh.rank() == 0; }
  bool last() const { return step == config.train.steps; }
  bool over() const { return step >= config.train.steps || stop_requested || no_improvement; }
  // Whether something that happens every so many steps, 0: never, is due after this step.
  bool due(std::int64_t every) const { return every > 0 && step % every == 0; }
  bool logged() const { return due(config.metrics.log_every) || last(); }
  double tokens_per_second() const { return static_cast<double>(result.tokens) / seconds; }
  // Model FLOPs utilization; none where the peak is unknown.
  std::optional<double> mfu() const {
    return machine.peak_flops > 0 ? std::optional(flops / seconds / machine.peak_flops)
                                  : std::nullopt;
  }
  // Of a batch in the unit of the configuration: sequences or tokens.
  std::int64_t batch_size() const;

  // Seconds that ranks may wait for each other: outside of steps, and where files are read and
  // written, with time for a checkpoint.
  double timeout() const;
  double file_timeout() const;
  void expect_files() { watchdog.set_timeout(file_timeout()); }

  bool needs_engine() const;  // an observer does, after this step

  // Tells every observer: run.tell(&Observer::after_step).
  template <class... Event, class... Args>
  void tell(void (Observer::*event)(TrainingRun&, Event...), Args&&... args) {
    for (const auto& observer : observers) (observer.get()->*event)(*this, args...);
  }
};

struct EvaluationResult {  // of the validation data
  std::map<config::Metric, double> values;
  std::int64_t tokens = 0;  // labels of the first objective
  double seconds = 0;
};

struct WrittenCheckpoint {
  const checkpoint::CheckpointResult& result;
  double seconds = 0;
};

// Told on every rank; what it does not care about it leaves alone. An observer may communicate, so
// all ranks have the same ones in the same order, but for those that only write on rank 0.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_start(TrainingRun&) {}  // weights are there, no step is done
  // Whether after_step() of the step that is being computed looks at more than its result, at what
  // the engine holds behind it, and so before the next one is launched. The same on all ranks.
  virtual bool needs_engine(const TrainingRun&) const { return false; }
  virtual void after_step(TrainingRun&) {}
  virtual void during_evaluation(TrainingRun&) {}  // after a batch; may set stop_requested
  virtual void after_evaluation(TrainingRun&, const EvaluationResult&) {
  }  // before after_step() is over
  virtual void after_checkpoint(TrainingRun&, const WrittenCheckpoint&) {
  }                                     // before after_step() is over
  virtual void at_end(TrainingRun&) {}  // not where an error ends the run
};

std::int64_t peak_memory_bytes();   // of this process
void say(const std::string& text);  // on standard output, at once; for rank 0
void warn(const std::string& text);

}  // namespace tfm::train
