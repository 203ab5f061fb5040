#pragma once
// The fastest layouts of a configuration that fit a device, by predicted time, and why others are
// none of them.
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
  std::int64_t micro_batch = 0, micro_batches = 0;  // sequences of a rank, and how many of them
  std::int64_t tokens = 0;                          // of a step
  std::int64_t bytes = 0;                           // of the rank that needs most
  Prediction times;
};

struct Suggestions {
  std::vector<Suggestion> best;     // the fastest first
  std::optional<Suggestion> given;  // the configuration as it is, where the ranks can have it

  struct Refused {
    std::string reason;  // with the legal values
    std::int64_t layouts = 0;
  };
  std::vector<Refused> refused;
  struct Range {  // of what all of some candidates have
    std::int64_t candidates = 0;
    double least = 0, most = 0;
    void add(double x);
  };
  // Bytes over what a rank may use: the least is that of the training program of the longest
  // batches, others may be lower bounds.
  Range too_large;
  std::int64_t larger = 0;     // micro-batches above one that is too large
  Range slower;                // seconds of a step
  std::int64_t no_faster = 0;  // that recompute what a slower one than the last of `best` keeps
  // Whose LeastTime is longer than the last one of `best` takes.
  std::int64_t bounded = 0;
  std::int64_t planned = 0;  // plans made
};

// `config`: as it was read. The global batch, the sequence length and the precision stay.
Suggestions suggest(const config::Config& config, int ranks, const DeviceModel& device,
                    std::size_t most = 5);

}  // namespace tfm::plan
