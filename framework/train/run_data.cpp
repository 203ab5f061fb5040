#include "train/run_data.h"

#include <algorithm>

namespace tfm {

SourceSpec source_spec(const SourceConfig& c) {
  SourceSpec spec{.type = c.type, .paths = {}, .field = c.field, .shuffle = c.shuffle};
  for (const SourcePath& p : c.paths) spec.paths.push_back({p.path, p.weight});
  return spec;
}

RunData::RunData(const Config& config) : tokenizer(load_tokenizer(config.data.tokenizer)) {
  train = open_source(source_spec(config.data.train), *tokenizer, config.train.seq_len);
  train->check_ids(config.model.vocab_size);
  if (!config.data.validation) return;
  validation = open_source(source_spec(*config.data.validation), *tokenizer, config.train.seq_len);
  validation->check_ids(config.model.vocab_size);
}

std::int64_t RunData::validation_sequences(const Config& config) const {
  if (!validation) return 0;
  if (config.eval.batches == 0) return validation->samples();
  return std::min(validation->samples(), config.eval.batches * config.train.global_batch_size);
}

BatchReader RunData::validation_reader() const {
  return [this](std::int64_t first, std::int64_t count, std::span<std::int32_t> ids, std::span<std::int32_t> labels) {
    const auto T = static_cast<std::size_t>(validation->seq_len());
    std::vector<std::int32_t> sample(T + 1);
    for (std::int64_t i = 0; i < count; ++i) {
      validation->read(first + i, sample);
      const auto at = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(i) * T);
      std::copy_n(sample.begin(), T, ids.begin() + at);
      std::copy_n(sample.begin() + 1, T, labels.begin() + at);
    }
  };
}

}  // namespace tfm
