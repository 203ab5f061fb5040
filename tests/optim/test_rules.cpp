// Rules that look at whole parts: what they compute does not depend on the number of threads, and a
// checkpoint of another optimizer is refused.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "checkpoint/checkpoint.h"
#include "support/batch.h"
#include "train/engine_state.h"

namespace tfm {
namespace {

std::unique_ptr<train::Engine> engine_of(const std::string& type, int threads) {
  config::Config c = config::parse_config(
      "model: {family: decoder, vocab_size: 300, d_model: 160, n_layers: 1, n_heads: 4}\n"
      "train: {global_batch_size: 4, seq_len: 8}\n"
      "data: {train: {type: tokens, path: none.bin}}\n",
      "test", {"optimizer.type=" + type});
  config::resolve_for_ranks(c, 1);
  auto engine =
      std::make_unique<train::Engine>(plan::make_step_plan(c, comm::single_mesh()), threads);
  engine->initialize_parameters();
  return engine;
}

const test::FillBatch kRuleBatch = [](std::int64_t first, std::int64_t, const BatchFields& fields) {
  for (std::size_t i = 0; i < fields.at(Field::ids).size(); ++i) {
    fields.at(Field::ids)[i] =
        static_cast<std::int32_t>((static_cast<std::size_t>(first) + i * 5) % 300);
    fields.at(Field::labels)[i] = static_cast<std::int32_t>((i * 7 + 3) % 300);
  }
};

std::vector<float> trained(const std::string& type, int threads, double lr = 0.01) {
  const auto engine = engine_of(type, threads);
  for (std::int64_t t = 1; t <= 3; ++t) test::train_step(*engine, t, lr, kRuleBatch);
  const auto* weights = static_cast<const float*>(engine->flat().parameters);
  return {weights, weights + engine->model().parameters().flat_elements()};
}

TEST(Rules, BitsDoNotDependOnTheTeam) {
  // Where those of products do not, which is a matter of the processor: weights that are all
  // gradient show it.
  const bool products = trained("sgd", 3, 100) == trained("sgd", 1, 100);
  for (const char* type : {"lamb", "adafactor", "muon"}) {
    const std::vector<float> team = trained(type, 3), one = trained(type, 1);
    EXPECT_TRUE(team == one || !products) << type;
    for (std::size_t i = 0; i < one.size(); ++i) ASSERT_NEAR(team[i], one[i], 1e-3) << type;
  }
}

TEST(Rules, ACheckpointOfAnotherOptimizerIsRefused) {
  const std::string folder =
      std::filesystem::temp_directory_path() / ("tfm-rules-test-" + std::to_string(getpid()));
  const auto from = engine_of("lamb", 1);
  const auto pieces = train::checkpoint_chunks(*from);
  const checkpoint::CheckpointResult saved =
      checkpoint::write_checkpoint(folder, {.step = 1}, pieces, 1, {});
  ASSERT_TRUE(saved.ok()) << saved.error;
  const checkpoint::CheckpointReader reader(saved.path);
  train::restore(reader, saved.path, *engine_of("adamw", 1), true);  // has the same moments
  for (const std::string type : {"adafactor", "muon"}) {
    train::restore(reader, saved.path, *engine_of(type, 1), false);  // its weights alone
    try {
      train::restore(reader, saved.path, *engine_of(type, 1), true);
      ADD_FAILURE() << type;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::input);
      EXPECT_NE(std::string(e.what()).find("tensor '" + type + "."), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("optimizer.type"), std::string::npos) << e.what();
    }
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tfm
