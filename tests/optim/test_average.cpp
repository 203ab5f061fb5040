// The average of the weights against its formula: from the first weights on, each update keeps
// min(ema, (1 + t) / (10 + t)) of it, t counting updates from 1.
#include <gtest/gtest.h>

#include <cmath>

#include "models/registry.h"
#include "support/batch.h"
#include "support/weights.h"

namespace tfm {
namespace {

std::unique_ptr<train::Engine> engine_of(const std::string& precision, double ema) {
  config::Config c = config::parse_config(
      "model: {family: decoder, vocab_size: 32, d_model: 16, n_layers: 1, n_heads: 2}\n"
      "train: {global_batch_size: 4, seq_len: 8}\n"
      "data: {train: {type: tokens, path: none.bin}}\n",
      "test", {"precision=" + precision, "optimizer.ema=" + std::to_string(ema)});
  config::resolve_for_ranks(c, 1);
  auto engine = std::make_unique<train::Engine>(plan::make_step_plan(c, comm::single_mesh()), 1);
  engine->initialize_parameters();
  return engine;
}

const test::FillBatch kBatch = [](std::int64_t first, std::int64_t, const BatchFields& fields) {
  for (std::size_t i = 0; i < fields.at(Field::ids).size(); ++i) {
    fields.at(Field::ids)[i] =
        static_cast<std::int32_t>((static_cast<std::size_t>(first) + i * 5) % 32);
    fields.at(Field::labels)[i] = static_cast<std::int32_t>((i * 7 + 3) % 32);
  }
};

std::vector<float> values(const train::Engine& e, const void* flat) {
  const auto* v = static_cast<const float*>(flat);
  return {v, v + e.optimizer().shards().elements};
}
constexpr auto weights = test::flat_weights_of;

// The share of the average that an update keeps is a ratio of small numbers.
TEST(Average, WarmsUpWithTheUpdates) {
  const auto engine = engine_of("fp32", 0.75);
  const auto keep = [&](std::int64_t t) { return engine->optimizer().numbers(t, 1e-3).keep; };
  EXPECT_DOUBLE_EQ(keep(1), 2.0 / 11);
  EXPECT_DOUBLE_EQ(keep(2), 3.0 / 12);
  EXPECT_DOUBLE_EQ(keep(8), 9.0 / 18);
  EXPECT_DOUBLE_EQ(keep(25), 26.0 / 35);
  EXPECT_DOUBLE_EQ(keep(26), 0.75);
  EXPECT_DOUBLE_EQ(keep(1000), 0.75);
}

// After n updates: the weights of each, w_0 the first ones, times what later updates keep of them.
TEST(Average, IsTheSumThatTheFormulaGives) {
  for (const std::string precision : {"fp32", "bf16", "fp16"}) {
    const auto engine = engine_of(precision, 0.3);
    std::vector<std::vector<float>> w{weights(*engine)};
    EXPECT_EQ(values(*engine, engine->flat().average), w[0]) << "starts from the first weights";
    if (precision == "fp16") engine->loss_scale().value = 64;  // nothing overflows
    constexpr std::int64_t updates = 6;
    for (std::int64_t t = 1; t <= updates; ++t) {
      ASSERT_TRUE(test::train_step(*engine, t, 0.02, kBatch).applied);
      w.push_back(weights(*engine));
    }
    // 2/11, 3/12, 4/13 = 0.3077 and from there on 0.3.
    const double kept[] = {0, 2.0 / 11, 3.0 / 12, 0.3, 0.3, 0.3, 0.3};
    std::vector<double> share(updates + 1);
    for (std::int64_t t = 0; t <= updates; ++t) {
      share[t] = t == 0 ? 1 : 1 - kept[t];
      for (std::int64_t later = t + 1; later <= updates; ++later) share[t] *= kept[later];
    }
    const std::vector<float> average = values(*engine, engine->flat().average);
    double moved = 0;
    for (std::size_t i = 0; i < average.size(); ++i) {
      double expected = 0;
      for (std::int64_t t = 0; t <= updates; ++t) expected += share[t] * w[t][i];
      ASSERT_NEAR(average[i], expected, 1e-6 * std::max(1.0, std::abs(expected)))
          << precision << " element " << i;
      moved = std::max(moved, std::abs(expected - static_cast<double>(w[0][i])));
    }
    EXPECT_GT(moved, 0.01) << "the weights hardly moved, so this says little";
  }
}

template <class P>
P rounded(float w) {
  if constexpr (std::is_same_v<P, bf16>) return split_weight(w).rounded;
  return P(w);
}

// Exchanged, the average is what the model computes with, rounded where parameters are of 16 bits;
// exchanged again, all is as before.
template <class P>
void expect_exchange(const std::string& precision) {
  const auto engine = engine_of(precision, 0.5);
  if (precision == "fp16") engine->loss_scale().value = 64;
  for (std::int64_t t = 1; t <= 4; ++t)
    ASSERT_TRUE(test::train_step(*engine, t, 0.02, kBatch).applied);
  const auto* parameters = static_cast<const P*>(engine->flat().parameters);
  const std::vector<float> trained = weights(*engine),
                           average = values(*engine, engine->flat().average);
  const double loss = test::evaluate(*engine, 4, kBatch).mean();
  const auto expect_parameters = [&](const std::vector<float>& of) {
    int wrong = 0;
    for (const nn::PartSlice& p : engine->model().parameters().slices())
      for (std::int64_t i = p.offset; i < p.offset + p.elements(); ++i)
        wrong += static_cast<float>(parameters[i]) !=
                 static_cast<float>(rounded<P>(of[static_cast<std::size_t>(i)]));
    EXPECT_EQ(wrong, 0) << precision;
  };
  expect_parameters(trained);
  engine->swap_average();
  expect_parameters(average);
  EXPECT_EQ(weights(*engine), average);
  EXPECT_EQ(values(*engine, engine->flat().average), trained);
  EXPECT_NE(test::evaluate(*engine, 4, kBatch).mean(), loss);
  engine->swap_average();
  expect_parameters(trained);
  EXPECT_EQ(weights(*engine), trained);
  EXPECT_EQ(test::evaluate(*engine, 4, kBatch).mean(), loss);
}

TEST(Average, ExchangedIsWhatTheModelComputesWith) {
  expect_exchange<float>("fp32");
  expect_exchange<bf16>("bf16");
  expect_exchange<f16>("fp16");
}

}  // namespace
}  // namespace tfm
