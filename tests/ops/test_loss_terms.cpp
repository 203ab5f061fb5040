// A loss of many terms: each is summed apart, and its gradient has a scale of its own.
#include <gtest/gtest.h>

#include <cmath>

#include "core/step_numbers.h"
#include "graph/planner.h"
#include "ops/losses.h"

namespace tfm {
namespace {

constexpr std::int64_t kTokens = 6, kColumns = 4, kWords = 5;

struct Terms {
  std::vector<double> losses, gradient;  // of the hidden states
};

// One term for each scale, with labels of its own.
Terms terms(const std::vector<double>& scales) {
  auto tape = std::make_shared<graph::Recorder>(DType::f64);
  const graph::Value x = tape->parameter(0, "x", {kTokens, kColumns}),
                     table = tape->parameter(1, "table", {kWords, kColumns});
  std::vector<graph::Value> labels, losses;
  for (std::size_t k = 0; k < scales.size(); ++k) {
    labels.push_back(tape->input("labels." + std::to_string(k), {kTokens}, DType::i32));
    losses.push_back(ops::linear_cross_entropy(
        *tape, x, table, {}, labels.back(),
        {.vocab_size = kWords, .vocab_end = kWords, .objective = static_cast<int>(k)}));
  }
  graph::Program program = graph::plan(tape, {.outputs = losses});
  std::vector<double> hidden, weights, dx(kTokens * kColumns), dw(kWords * kColumns);
  for (int i = 0; i < kTokens * kColumns; ++i) hidden.push_back(std::sin(i + 1.0));
  for (int i = 0; i < kWords * kColumns; ++i) weights.push_back(std::cos(3.0 * i));
  std::vector<std::vector<std::int32_t>> ids(scales.size());
  graph::Bindings b;
  b.data.resize(tape->values().size());
  b.gradients.resize(tape->values().size());
  b.data[0] = {hidden.data(), DType::f64, {kTokens, kColumns}};
  b.data[1] = {weights.data(), DType::f64, {kWords, kColumns}};
  b.gradients[0] = {dx.data(), DType::f64, {kTokens, kColumns}};
  b.gradients[1] = {dw.data(), DType::f64, {kWords, kColumns}};
  StepNumbers numbers;
  for (std::size_t k = 0; k < scales.size(); ++k) {
    for (int i = 0; i < kTokens; ++i)
      ids[k].push_back(static_cast<std::int32_t>((i * (k + 2)) % kWords));
    b.data[static_cast<std::size_t>(labels[k].id)] = {ids[k].data(), DType::i32, {kTokens}};
    numbers.gradient_scale[k] = scales[k];
  }
  std::vector<double> arena(static_cast<std::size_t>(program.arena_bytes() / 8 + 1));
  program.bind(reinterpret_cast<std::byte*>(arena.data()), b);
  cpu::Stream stream{1};
  const comm::Mesh mesh = comm::single_mesh();
  program.run({&stream, &mesh, {}, &numbers});
  Terms t{.losses = {}, .gradient = dx};
  for (const graph::Value loss : losses) t.losses.push_back(*program.value(loss).ptr<double>());
  return t;
}

TEST(LossTerms, AreAsManyAsALossHasTerms) {
  const std::vector<double> scales{1, 0.5, 2, 0.25, 3};
  const Terms all = terms(scales);
  std::vector<double> sum(all.gradient.size());
  for (std::size_t k = 0; k < scales.size(); ++k) {
    std::vector<double> alone(scales.size());
    alone[k] = scales[k];
    const Terms one = terms(alone);
    EXPECT_GT(all.losses[k], 0);
    EXPECT_EQ(one.losses, all.losses) << "losses do not depend on the scales";
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += one.gradient[i];
  }
  for (std::size_t i = 0; i < sum.size(); ++i) EXPECT_NEAR(all.gradient[i], sum[i], 1e-12);
}

// Of 2048 rows and 65536 words: 104 MiB are 416 rows of fp32 and 832 of bf16; of 15 % of the rows
// 384 are computed.
TEST(LossChunks, HaveTheLogitsOfExpectedLabelsInSoManyBytes) {
  constexpr std::int64_t rows = 2048, words = 65536;
  const auto chunk = [](DType dtype, double labelled, int ranks) {
    auto tape = std::make_shared<graph::Recorder>(dtype);
    const graph::Value x = tape->parameter(0, "x", {rows, kColumns}),
                       table = tape->parameter(1, "table", {words / ranks, kColumns}),
                       labels = tape->input("labels", {rows}, DType::i32);
    ops::linear_cross_entropy(
        *tape, x, table, {}, labels,
        {.vocab_size = words, .vocab_end = words / ranks, .shards = ranks, .labelled = labelled});
    const std::int64_t row = words / ranks * size_of(dtype);
    return tape->nodes().back().op->workspace_bytes(graph::Phase::backward) / row;
  };
  EXPECT_EQ(chunk(DType::f32, 1, 1), 416);
  EXPECT_EQ(chunk(DType::bf16, 1, 1), 688) << "a third of the rows";
  EXPECT_EQ(chunk(DType::f32, 0.15, 1), 384);
  EXPECT_EQ(chunk(DType::bf16, 0.15, 1), 384);
  EXPECT_EQ(chunk(DType::f32, 0.15, 2), 416) << "ranks exchange numbers of every chunk";
}

}  // namespace
}  // namespace tfm
