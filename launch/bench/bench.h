#pragma once
// The measurements of tfm-bench and their output. Each measurement returns the exit code.
#include <nlohmann/json.hpp>

#include "data/objective.h"
#include "launch/support/program.h"
#include "plan/device_model.h"

namespace tfm::launch {

int bench_scaling(const Arguments& args);
int bench_step(const Arguments& args);
int bench_kernels(const Arguments& args);
int bench_collectives(const Arguments& args);

// The network of the results of bench_collectives() on so many ranks, from rings of the smallest
// and the largest tensor: t = (n - 1) latency + (n - 1) / n bytes / bandwidth. Error(usage) where
// they do not tell.
plan::DeviceModel::Link network_of(const nlohmann::ordered_json& results, int ranks);

// Random ids. Every position is real; the expected share of the objective has a label.
class RandomData final : public data::Dataset {
 public:
  // Batches of `sequences` sequences, of shape number `shape`.
  RandomData(const config::Config& config, std::size_t shape, std::int64_t sequences)
      : vocab_size_(std::min(config.model.vocab_size, config.model.source_vocabulary())),
        labelled_(data::objective_of(config.data.train).labelled(config.data.train)),
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

// A row of a bar chart, whose longest bar is as wide as the picture.
struct Bar {
  std::string label;
  double value = 0;
  std::string text;  // printed next to the bar
};
// Writes the results to the files that --json and --svg name, if any.
void write_results(const Arguments& args, const nlohmann::ordered_json& results,
                   const std::string& title, const std::vector<Bar>& bars);
void write_json(const Arguments& args, const nlohmann::ordered_json& results);

double median(std::vector<double> v);

}  // namespace tfm::launch
