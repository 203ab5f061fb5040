#pragma once
// What a run computes on a layout, to be compared with what it computes on another one.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "checkpoint/checkpoint.h"
#include "comm/consensus.h"
#include "job.h"
#include "support/batch.h"
#include "train/engine_state.h"

namespace tfm::test {

struct ModelCase {
  std::string model, data;
  int blocks = 2;
};

// Sequences of 16 tokens.
inline config::Config config_of(const ModelCase& c, const comm::Layout& layout,
                                std::vector<std::string> overrides) {
  overrides.insert(overrides.end(),
                   {"parallel.tensor=" + std::to_string(layout.size(nn::kModelAxes)),
                    "parallel.pipeline=" + std::to_string(layout.size(nn::kStageAxes)),
                    "parallel.context=" + std::to_string(layout.size(nn::kSequenceAxes)),
                    "parallel.bucket_bytes=8Ki", "train.seq_len=16"});
  config::Config config = config::parse_config(
      "model: {" + c.model +
          ", vocab_size: 40, d_model: 64, n_heads: 8, d_ff: 32, max_seq_len: 32}\n"
          "data: {train: {" +
          c.data + ", path: none.bin}}\n",
      "test", overrides);
  config::resolve_for_ranks(config, layout.world());
  return config;
}

// Documents of five positions, and the last one padding.
inline void fill_documents(std::int64_t first, std::int64_t count, const BatchFields& fields) {
  for (const auto& [field, values] : fields) {
    const FieldKind kind = info_of(field).kind;
    const std::size_t width = values.size() / static_cast<std::size_t>(count);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t at = static_cast<std::size_t>(first) * width + i;
      values[i] = static_cast<std::int32_t>(
          kind == FieldKind::mask ? (at % 16 == 15 ? -1 : at % 16 / 5)
          : kind == FieldKind::answer || kind == FieldKind::type ? at % 2
                                                                 : at * 7 % 40);
    }
  }
}

// Losses of training, that of an evaluation, and the last gradient's norm.
inline std::vector<double> trained(const config::Config& c, const comm::Mesh& mesh,
                                   std::int64_t steps) {
  train::Engine e(plan::make_step_plan(c, mesh), 1);
  EXPECT_EQ(e.arena_high_water(), e.plan().memory.total());
  e.initialize_parameters();
  std::vector<double> all;
  train::StepResult r;
  for (std::int64_t s = 1; s <= steps; ++s) {
    r = train_step(e, s, 1e-3, fill_documents);
    all.push_back(r.loss);
  }
  all.insert(all.end(),
             {evaluate(e, e.plan().shapes[0].batch, fill_documents).mean(), r.grad_norm});
  return all;
}

// The same of rank 0 alone, on every rank.
inline std::vector<double> trained_alone(const config::Config& c, std::int64_t steps) {
  std::vector<double> all(static_cast<std::size_t>(steps) + 2);
  if (job().rank() == 0) all = trained(c, comm::single_mesh(), steps);
  mesh_of({job().size(), 1}).world().broadcast({all.data(), DType::f64, {std::ssize(all)}}, 0);
  return all;
}

inline void expect_near(const std::vector<double>& a, const std::vector<double>& b, double relative,
                        const std::string& where) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)  // a norm is of sums that cancel
    EXPECT_NEAR(a[i], b[i], (i + 1 < a.size() ? 1 : 20) * relative * std::abs(b[i]))
        << where << ", number " << i;
}

// A run of a step on each of these layouts, with a checkpoint between every two, against
// `expected`.
inline void expect_continued(const std::vector<config::Config>& turns,
                             const std::vector<double>& expected) {
  namespace fs = std::filesystem;
  std::string written, dir;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const comm::Layout layout = config::layout_of(turns[i]);
    const comm::Mesh& mesh = mesh_of(layout);
    if (i == 0)
      dir = comm::broadcast(
          mesh.world(),
          (fs::temp_directory_path() / ("tfm-turns-" + std::to_string(getpid()))).string());
    train::Engine e(plan::make_step_plan(turns[i], mesh), 1);
    if (i == 0)
      e.initialize_parameters();
    else
      train::restore(checkpoint::CheckpointReader(written), written, e, true);
    const auto step = static_cast<std::int64_t>(i) + 1;
    const train::StepResult r = train_step(e, step, 1e-3, fill_documents);
    EXPECT_NEAR(r.loss, expected[i], 1e-6 * expected[i]) << layout.str();
    const auto result = checkpoint::write_checkpoint(dir, {.step = step, .updates = e.updates()},
                                                     train::checkpoint_chunks(e), 0,
                                                     checkpoint::checkpoint_ranks(mesh.world()));
    ASSERT_TRUE(result.ok()) << result.error;
    written = result.path;
    mesh.world().barrier();
    if (i + 1 == turns.size() && mesh.rank() == 0) fs::remove_all(dir);
  }
}

}  // namespace tfm::test
