#pragma once
// Searches over the layouts of a configuration: for the fastest that fit a device, by predicted
// time, with why the others are not among them; and for the nearest one that fits.
#include "plan/layout_choice.h"
#include "plan/prediction.h"

namespace tfm::plan {

struct Suggestion {
  LayoutChoice choice;
  comm::Layout layout;
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

struct Fit {
  LayoutChoice choice;
  std::int64_t bytes = 0;  // of the rank that needs most
};

// The smallest change of `config`, as it was read, that fits in `usable_bytes` per rank. From the
// innermost loop outwards, always starting with the given value: smaller micro-batches, recompute
// selective and full, higher ZeRO stages, sequence parallelism, more tensor ranks, more pipeline
// stages, another context exchange, more context ranks. nullopt if nothing fits.
std::optional<Fit> nearest_fit(const config::Config& config, int ranks, std::int64_t usable_bytes);

}  // namespace tfm::plan
