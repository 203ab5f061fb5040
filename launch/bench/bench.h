#pragma once
// The measurements of tfm-bench, and how they are written down. Each returns the exit code.
#include <fstream>
#include <nlohmann/json.hpp>

#include "data/dataset.h"
#include "launch/support/program.h"

namespace tfm::launch {

int bench_scaling(const Arguments& args);
int bench_step(const Arguments& args);
int bench_kernels(const Arguments& args);
int bench_collectives(const Arguments& args);

// Ids drawn at random: every position is real and has a label, of masked tokens a share of them.
class RandomData final : public data::Dataset {
 public:
  // Of batches of `sequences` of one shape.
  RandomData(const config::Config& config, std::size_t shape, std::int64_t sequences)
      : vocab_size_(config.model.vocab_size),
        labelled_(config.data.train.type == config::SourceType::mlm
                      ? config.data.train.mask_probability
                      : 1),
        batch_{shape, sequences} {}
  GlobalBatch batch(std::int64_t) const override { return batch_; }
  std::int64_t batches() const override { return 1; }
  void fill(std::int64_t index, std::int64_t first, std::int64_t count,
            const BatchFields& fields) const override;

 private:
  std::int64_t vocab_size_;
  double labelled_;
  GlobalBatch batch_;
};

// A horizontal bar for each row, the longest as wide as the picture.
struct Bar {
  std::string label;
  double value = 0;
  std::string text;  // beside it
};
// To the files that --json and --svg name, if they do.
void write_results(const Arguments& args, const nlohmann::ordered_json& results,
                   const std::string& title, const std::vector<Bar>& bars);
void write_json(const Arguments& args, const nlohmann::ordered_json& results);
// Error(retryable) where the file cannot be written.
void write_text(const std::string& path, const std::string& text);

double median(std::vector<double> v);

}  // namespace tfm::launch
