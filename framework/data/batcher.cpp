#include "data/batcher.h"

#include <algorithm>

#include "core/error.h"

namespace tfm {

Batcher::Batcher(const Source& source, SampleOrder order, std::int64_t global_batch, std::int64_t seq_len)
    : source_(source), order_(order), global_batch_(global_batch) {
  TFM_CHECK(global_batch > 0, "a batch needs at least one sequence");
  TFM_CHECK(seq_len == source.seq_len(), "the source was opened with another seq_len");
  TFM_CHECK(order.samples() == source.samples(), "the order was made for another source");
}

void Batcher::fill(std::int64_t step0, std::int64_t first, std::int64_t count, std::span<std::int32_t> inputs,
                   std::span<std::int32_t> labels) const {
  const std::int64_t t = seq_len();
  TFM_CHECK(step0 >= 0 && first >= 0 && count >= 0 && first + count <= global_batch_, "sequences outside the batch");
  TFM_CHECK(static_cast<std::int64_t>(inputs.size()) == count * t && labels.size() == inputs.size(), "count * seq_len ids");
  std::vector<std::int32_t> sample(static_cast<std::size_t>(t) + 1);
  for (std::int64_t i = 0; i < count; ++i) {
    source_.read(order_.sample(step0 * global_batch_ + first + i), sample);
    std::copy_n(sample.begin(), t, inputs.begin() + i * t);
    std::copy_n(sample.begin() + 1, t, labels.begin() + i * t);
  }
}

TokenBatch Prefetcher::load(std::int64_t step0) const {
  const std::size_t ids = static_cast<std::size_t>(count_ * batcher_.seq_len());
  TokenBatch batch{std::vector<std::int32_t>(ids), std::vector<std::int32_t>(ids)};
  batcher_.fill(step0, first_, count_, batch.inputs, batch.labels);
  return batch;
}

const TokenBatch& Prefetcher::get(std::int64_t step0) {
  if (ahead_.valid() && ahead_step_ == step0)
    current_ = ahead_.get();
  else
    current_ = load(step0);
  ahead_step_ = step0 + 1;
  ahead_ = std::async(std::launch::async, [this, step = ahead_step_] { return load(step); });
  return current_;
}

}  // namespace tfm
