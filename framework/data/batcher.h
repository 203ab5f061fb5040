#pragma once
// Batches as a function of the step alone; each rank takes its part.
#include <cstdint>
#include <future>
#include <span>
#include <vector>

#include "data/order.h"
#include "data/source.h"

namespace tfm {

// The global batch of step s, counted from 0, is positions [s * global_batch, (s + 1) * global_batch) of the order.
class Batcher {
 public:
  // The source must outlive the batcher.
  Batcher(const Source& source, SampleOrder order, std::int64_t global_batch, std::int64_t seq_len);

  // Sequences [first, first + count) of that batch. inputs, labels: count * seq_len ids, row by row (B, T); a label is the id
  // after the input. Thread-safe. Throws Error(input) as Source::read does.
  void fill(std::int64_t step0, std::int64_t first, std::int64_t count, std::span<std::int32_t> inputs,
            std::span<std::int32_t> labels) const;
  std::int64_t global_batch() const { return global_batch_; }
  std::int64_t seq_len() const { return source_.seq_len(); }

 private:
  const Source& source_;
  SampleOrder order_;
  std::int64_t global_batch_;
};

struct TokenBatch {
  std::vector<std::int32_t> inputs, labels;  // (count, seq_len)
};

// Reads sequences [first, first + count) of the next step in another thread while the caller works on this one.
class Prefetcher {
 public:
  // The batcher must outlive the prefetcher.
  Prefetcher(const Batcher& batcher, std::int64_t first, std::int64_t count) : batcher_(batcher), first_(first), count_(count) {}

  // Any step; the one after the last is ready or on its way. Valid until the next call. What reading a step throws is thrown
  // when that step is asked for.
  const TokenBatch& get(std::int64_t step0);

 private:
  TokenBatch load(std::int64_t step0) const;

  const Batcher& batcher_;
  std::int64_t first_, count_, ahead_step_ = -1;
  TokenBatch current_;
  std::future<TokenBatch> ahead_;  // its destructor waits
};

}  // namespace tfm
