#pragma once
// What a run directory holds: metrics.jsonl, and results of tfm-bench scaling beside it.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tfm::report {

// Values over steps, in ascending order of x. NaN: nothing was measured there, or not a number.
struct Series {
  std::vector<double> x, y;

  bool empty() const { return x.empty(); }
  void add(double at, double value) { x.push_back(at), y.push_back(value); }
  // Forgets what lies after `last`.
  void cut(double last);
  std::size_t finite() const;  // number of values that are
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

struct Run {
  std::string name, path;
  std::string config;  // effective, YAML
  std::string version;
  std::int64_t parameters = 0, world = 0, planned_bytes = 0;
  std::map<std::string, std::int64_t> layout;
  std::map<std::string, std::int64_t> memory;  // of rank 0 by category
  // Of one training step: the most bytes of activations in use in equal parts of its instructions,
  // and the part in which the backward pass begins.
  std::vector<std::int64_t> activations;
  std::int64_t backward = 0, instructions = 0;
  std::vector<CollectiveTotal> collectives;  // of a step
  double rank_flops = 0;                     // of a step; 0: not known, or steps differ

  std::vector<std::int64_t> restarts;             // steps resumed from
  std::map<std::string, Series> steps;            // by name: loss, grad_norm, lr, ...
  std::map<std::string, Series> phases;           // seconds by phase of a step
  std::map<std::string, Series> evaluations;      // by metric
  std::map<std::string, double> seconds_outside;  // of steps: evaluation, checkpoints
  std::int64_t checkpoints = 0, last_step = 0, log_every = 1;
  std::int64_t nonfinite = 0;  // logged steps without a finite loss
  std::string end;             // why it ended; empty: it is running, or was killed
  std::vector<ScalingPoint> scaling;
  std::vector<std::string> notes;  // what was damaged

  const Series& step(const std::string& metric) const;
  double last(const std::string& metric) const;  // finite value; NaN: there is none
};

// `path`: the directory, or its metrics.jsonl. Lines that are damaged are left out with a note.
// Throws Error(input) where there is nothing to report.
Run read_run(const std::string& path);

}  // namespace tfm::report
