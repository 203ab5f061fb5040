#pragma once
// Searches for the fastest layouts of a configuration that fit a device, by predicted time, and
// counts why the others are not among them.
#include "plan/layouts.h"
#include "plan/prediction.h"

namespace tfm::plan {

struct Suggestion {
  std::vector<std::string> changes;  // of the configuration as read: "section.key=value"
  comm::Layout layout;
  bool sequence = false;  // sequence parallelism
  config::ContextExchange exchange{};
  config::PipelineSchedule schedule{};
  std::int64_t zero = 0;
  config::Recompute recompute{};
  // Sequences of a rank in a micro-batch, and micro-batches in a step.
  std::int64_t micro_batch = 0, micro_batches = 0;
  std::int64_t tokens = 0;  // of a step
  std::int64_t bytes = 0;   // of the rank that needs most
  Prediction times;
};

struct Suggestions {
  std::vector<Suggestion> best;     // the fastest first
  std::optional<Suggestion> given;  // the configuration as it is, if the ranks can run it

  struct Refused {
    std::string reason;  // with the legal values
    std::int64_t layouts = 0;
  };
  std::vector<Refused> refused;
  struct Range {  // of a quantity over some candidates
    std::int64_t candidates = 0;
    double least = 0, most = 0;
    void add(double x);
  };
  // Bytes beyond what a rank may use. The least is that of the training program of the largest
  // shape; others may be lower bounds.
  Range too_large;
  std::int64_t larger = 0;  // not tried: larger than a micro-batch that is too large
  Range slower;             // seconds of a step
  // Not tried: they recompute more than a candidate that is already slower than the last of `best`.
  std::int64_t no_faster = 0;
  // Not tried: their LeastTime is longer than the last of `best` takes.
  std::int64_t bounded = 0;
  std::int64_t planned = 0;  // plans made
};

// Returns the `most` fastest. `config`: as it was read; its global batch, sequence length and
// precision are kept.
Suggestions suggest(const config::Config& config, int ranks, const DeviceModel& device,
                    std::size_t most = 5);

}  // namespace tfm::plan
