#include "data/batch_shapes.h"

#include <algorithm>
#include <numeric>

#include "data/span_corruption.h"

namespace tfm::data {

std::vector<nn::BatchShape> batch_shapes(const config::Config& c) {
  const config::TrainConfig& t = c.train;
  const bool documents =
      c.data.train.documents == config::Documents::separate ||
      (c.data.validation && c.data.validation->documents == config::Documents::separate);
  const auto shape = [&](std::int64_t sequences, std::int64_t length) {
    nn::BatchShape s{.sequences = sequences,
                     .length = length,
                     .mask = documents ? nn::Mask::documents : nn::Mask::none,
                     .right_padded = true};
    if (c.model.translates()) s.source_length = length;
    return s;
  };
  if (c.data.train.type == config::SourceType::span_corruption) {
    const SpanLengths s =
        span_lengths(t.seq_len, c.data.train.mask_probability, c.data.train.mean_span_length);
    // Masks of dropout depend on the padded length: with it, it is a multiple of 8 in each layout.
    const std::int64_t shards = c.parallel.sequence ? c.parallel.tensor : 1,
                       context = c.parallel.context,
                       unit = context > 1 ? context * std::lcm<std::int64_t>(2, shards) : shards;
    const std::int64_t length =
        round_up(s.target, config::drops_targets(c) ? 8 : std::lcm<std::int64_t>(8, unit));
    if (c.model.position == config::Position::learned && length > c.model.max_seq_len)
      throw Error(
          ExitCode::usage,
          "model.max_seq_len " + std::to_string(c.model.max_seq_len) +
              ", the number of rows of the learned position table, is less than the " +
              std::to_string(length) + " tokens of span_corruption's targets" +
              (round_up(s.target, 8) <= c.model.max_seq_len
                   ? ", whose " + std::to_string(s.target) + " are padded to multiples of " +
                         std::to_string(std::lcm<std::int64_t>(8, unit)) +
                         " for parallel.tensor and parallel.context"
                   : "") +
              "; expected at least as many, or a smaller data.train.mask_probability or "
              "longer spans");
    return {{.sequences = t.global_batch_size,
             .length = length,
             .source_length = t.seq_len,
             .right_padded = true}};
  }
  if (t.global_batch_tokens == 0) return {shape(t.global_batch_size, t.seq_len)};
  std::vector<nn::BatchShape> all;
  for (std::int64_t length = 8; length < t.seq_len;
       length += std::max<std::int64_t>(8, length / 32 * 8))
    all.push_back(shape(std::max<std::int64_t>(1, t.global_batch_tokens / length), length));
  all.push_back(shape(std::max<std::int64_t>(1, t.global_batch_tokens / t.seq_len), t.seq_len));
  return all;
}

}  // namespace tfm::data
