#pragma once
// The contents of a run directory: metrics.jsonl and results of tfm-bench scaling.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tfm::report {

// Values over steps, in ascending order of x. NaN: nothing was measured there, or the value is not
// a number.
struct Series {
  std::vector<double> x, y;

  bool empty() const { return x.empty(); }
  void add(double at, double value) { x.push_back(at), y.push_back(value); }
  // Removes what lies after `last`.
  void cut(double last);
  // The value at `at`, linear between neighbours; NaN: there are no values.
  double value_at(double at) const;
  std::size_t finite() const;  // number of finite values
};

struct CollectiveTotal {
  std::string op, axis;
  std::int64_t bytes = 0, count = 0;  // bytes of the whole tensor
};

struct ScalingPoint {
  std::string mode;  // strong, weak
  double ranks = 1, tokens_per_second = 0;
  std::optional<double> efficiency, predicted;  // predicted: tokens per second
  bool oversubscribed = false;
};

// The load of each expert in a logged step as a multiple of an even one, by layer.
struct ExpertLoads {
  double step = 0;
  std::vector<std::pair<std::string, std::vector<double>>> layers;  // in the model's order
};

struct Run {
  std::string name, path;
  std::string config;  // effective, YAML
  std::string version;
  std::int64_t parameters = 0, world = 0, planned_bytes = 0;
  std::map<std::string, std::int64_t> layout;
  std::map<std::string, std::int64_t> memory;  // memory of rank 0 by category
  // Over one training step, cut into equal parts of its instructions: the most activation bytes in
  // use in each part, and the part in which the backward pass begins.
  std::vector<std::int64_t> activations;
  std::int64_t backward = 0, instructions = 0;
  std::vector<CollectiveTotal> collectives;  // of a step
  double rank_flops = 0;                     // of a step; 0: unknown, or steps differ

  // By step: Unix time, and seconds of running since the first start, pauses left out. Empty: the
  // file has no times.
  Series dates, elapsed;
  std::vector<std::int64_t> restarts;             // steps from which the run was resumed
  std::map<std::string, Series> steps;            // by name: loss, grad_norm, lr, ...
  std::map<std::string, Series> phases;           // seconds by phase of a step
  std::map<std::string, Series> evaluations;      // by metric
  std::vector<ExpertLoads> expert_loads;          // of up to 201 steps
  std::map<std::string, double> seconds_outside;  // outside of steps: evaluation, checkpoints
  std::int64_t begin = 0;                         // step that the first start resumed from
  std::int64_t last_step = 0;
  std::int64_t nonfinite = 0;  // logged steps without a finite loss
  std::string end;             // why it ended; empty: running or killed
  std::vector<ScalingPoint> scaling;
  std::vector<std::string> notes;  // about damaged input
  std::vector<std::string> files;  // that were read

  const Series& step(const std::string& metric) const;
  double last(const std::string& metric) const;  // last finite value; NaN: there is none
};

// `path`: the directory, or its metrics.jsonl. Damaged lines are skipped with a note. Error(input)
// if there is nothing to report.
Run read_run(const std::string& path);
// The runs at these paths: of a directory without metrics.jsonl all those below it. Runs of the
// same name are told apart by their paths.
std::vector<Run> read_runs(const std::vector<std::string>& paths);

}  // namespace tfm::report
