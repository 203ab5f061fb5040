#pragma once
// The measurements of tfm-bench, and how they are written down. Each returns the exit code.
#include <fstream>
#include <nlohmann/json.hpp>

#include "launch/support/program.h"
#include "train/engine.h"

namespace tfm::launch {

int bench_scaling(const Arguments& args);
int bench_step(const Arguments& args);
int bench_kernels(const Arguments& args);
int bench_collectives(const Arguments& args);

// Fills a batch with ids drawn at random: every position is real, every label counts.
train::BatchReader random_batch(std::int64_t vocab_size);

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
std::ofstream open_results(const std::string& path);  // Error(failed) where it cannot be written

double median(std::vector<double> v);

}  // namespace tfm::launch
