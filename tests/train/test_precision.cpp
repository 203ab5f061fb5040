// 16-bit storage: conversions bit by bit, training beside fp32, loss scaling.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "kernels/elementwise.h"
#include "models/registry.h"
#include "optim/loss_scale.h"
#include "support/batch.h"
#include "support/data_files.h"
#include "support/weights.h"
#include "train/engine_state.h"

namespace tfm {
namespace {

template <class T>
void every_value_reads_back() {
  for (unsigned b = 0; b < 65536; ++b) {
    const T x = std::bit_cast<T>(static_cast<std::uint16_t>(b));
    const auto f = static_cast<float>(x);
    if (std::isnan(f))
      EXPECT_TRUE(std::isnan(static_cast<float>(T(f))));
    else
      EXPECT_EQ(T(f).bits, b);
  }
}
TEST(Half, EveryValueReadsBack) {
  every_value_reads_back<bf16>();
  every_value_reads_back<f16>();
}

// Halfway between two neighbors goes to the even one, anything beside it to the nearer one.
template <class T>
void rounds_to_nearest_even(unsigned last_finite) {
  for (unsigned b = 0; b < last_finite; b += 7) {
    const float low = std::bit_cast<T>(static_cast<std::uint16_t>(b)),
                high = std::bit_cast<T>(static_cast<std::uint16_t>(b + 1));
    const float middle =
        static_cast<float>((static_cast<double>(low) + static_cast<double>(high)) / 2);
    for (const float sign : {1.0f, -1.0f}) {
      const unsigned s = sign < 0 ? 0x8000u : 0u;
      EXPECT_EQ(T(sign * middle).bits, s | (b + (b & 1u)));
      EXPECT_EQ(T(sign * std::nextafter(middle, low)).bits, s | b);
      EXPECT_EQ(T(sign * std::nextafter(middle, high)).bits, s | (b + 1));
    }
  }
}
TEST(Half, RoundsToNearestEven) {
  rounds_to_nearest_even<bf16>(0x7F7F);
  rounds_to_nearest_even<f16>(0x7BFF);
  EXPECT_EQ(f16(65520.0f).bits, 0x7C00u);
  EXPECT_EQ(f16(65519.0f).bits, 0x7BFFu);
}

template <class T>
void vectors_convert_alike() {
  std::vector<float> x;
  for (unsigned b = 0; b < 65536; ++b)
    for (const unsigned low : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFu, 0x1000u, 0x1001u})
      x.push_back(std::bit_cast<float>(b << 16 | low));
  x.resize(x.size() - 3);  // a part of a vector at the end
  std::vector<T> y(x.size());
  std::vector<float> back(x.size());
  cpu::Stream stream{2};
  const auto n = static_cast<std::int64_t>(x.size());
  kernels::convert_rows(stream, kernels::ConvertRowsArgs<float, T>{1, n, x.data(), n, y.data(), n});
  kernels::convert_rows(stream,
                        kernels::ConvertRowsArgs<T, float>{1, n, y.data(), n, back.data(), n});
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i])) {
      EXPECT_TRUE(std::isnan(back[i]));
      continue;
    }
    ASSERT_EQ(y[i].bits, T(x[i]).bits) << x[i];
    ASSERT_EQ(std::bit_cast<std::uint32_t>(back[i]),
              std::bit_cast<std::uint32_t>(static_cast<float>(y[i])));
  }
}
TEST(Half, VectorsConvertAsSingleValuesDo) {
  vectors_convert_alike<bf16>();
  vectors_convert_alike<f16>();
}

config::Config small(const std::string& precision, const std::string& more = "") {
  config::Config c = config::parse_config(
      "model: {family: decoder, vocab_size: 32, d_model: 32, n_layers: 2, n_heads: 4, n_kv_heads: "
      "2, dropout: 0.1, tie_embeddings: true}\n"
      "precision: " +
          precision +
          "\n"
          "train: {steps: 200, global_batch_size: 16, micro_batch_size: 8, seq_len: 16}\n"
          "optimizer: {lr: 3.0e-3, ema: 0.9}\n"
          "data: {train: {type: tokens, path: none.bin}}\n" +
          more,
      "test", {});
  config::resolve_for_ranks(c, 1);
  return c;
}

// A text with rules to learn: each id follows from the one before it, but for one in eight.
test::FillBatch text(std::int64_t step) {
  return [step](std::int64_t first, std::int64_t count, const BatchFields& f) {
    const auto T = static_cast<std::int64_t>(f.at(Field::ids).size()) / count;
    for (std::int64_t i = 0; i < count; ++i) {
      const RandomKey key{3, Purpose::data, static_cast<std::uint32_t>(first + i),
                          static_cast<std::uint32_t>(step)};
      std::int32_t b = static_cast<std::int32_t>(key.word(1) % 32);
      for (std::int64_t t = 0; t < T; ++t) {
        const std::uint32_t w = key.word(static_cast<std::uint64_t>(t + 2));
        const std::int32_t c =
            w % 8 == 0 ? static_cast<std::int32_t>(w / 8 % 32) : (5 * b + 7) % 32;
        f.at(Field::ids)[static_cast<std::size_t>(i * T + t)] = b;
        f.at(Field::labels)[static_cast<std::size_t>(i * T + t)] = c;
        b = c;
      }
    }
  };
}

struct Training {
  explicit Training(const config::Config& c)
      : engine(plan::make_step_plan(c, comm::single_mesh()), 2) {
    engine.initialize_parameters();
  }
  train::StepResult step() {
    ++number;
    return test::train_step(engine, number, 3e-3, text(number));
  }
  double mean_loss(int steps, int last) {
    double sum = 0;
    for (int i = 1; i <= steps; ++i) {
      const train::StepResult r = step();
      EXPECT_TRUE(r.applied) << "step " << i;
      if (i > steps - last) sum += r.loss / last;
    }
    return sum;
  }
  train::Engine engine;
  std::int64_t number = 0;
};

TEST(Precision, HalvesTrainAsFloatsDo) {
  const double reference = Training(small("fp32")).mean_loss(200, 20);
  EXPECT_LT(reference, 1.2) << "the text is not learned, so the comparison says little";
  for (const char* precision : {"bf16", "fp16"}) {
    Training run(small(precision));
    EXPECT_NEAR(run.mean_loss(200, 20), reference, 0.01 * reference) << precision;
    EXPECT_EQ(run.engine.arena_high_water(), run.engine.plan().memory.total());
  }
}

TEST(Precision, RecomputationChangesNoBit) {
  for (const char* precision : {"bf16", "fp16"}) {
    Training none(small(precision)), selective(small(precision, "recompute: selective\n")),
        full(small(precision, "recompute: full\n")),
        first(small(precision, "recompute: full\nrecompute_layers: 1\n"));
    for (int i = 0; i < 4; ++i) {
      const double loss = none.step().loss;
      EXPECT_EQ(loss, selective.step().loss);
      EXPECT_EQ(loss, full.step().loss);
      EXPECT_EQ(loss, first.step().loss);
    }
  }
}

TEST(Precision, MasterWeightsAreWhatParametersAreRoundedFrom) {
  Training run(small("bf16"));
  for (int i = 0; i < 3; ++i) run.step();
  const std::vector<float> master = test::flat_weights_of(run.engine);
  const auto* parameters = static_cast<const bf16*>(run.engine.flat().parameters);
  std::int64_t finer = 0;
  for (const nn::PartSlice& p : run.engine.model().parameters().slices())
    for (std::int64_t i = p.offset; i < p.offset + p.elements(); ++i) {
      const float w = master[static_cast<std::size_t>(i)];
      ASSERT_EQ(parameters[i].bits, split_weight(w).rounded.bits) << p.name;
      finer += static_cast<float>(parameters[i]) != w;
    }
  EXPECT_GT(finer, 1000);
}

TEST(Precision, CheckpointsKeepWhatTrainingGoesOnFrom) {
  const test::TemporaryFolder dir;
  const config::Config c = small("fp16");
  Training first(c);
  for (int i = 0; i < 3; ++i) first.step();
  first.engine.loss_scale().updates = 1234;
  checkpoint::CheckpointInfo info{.step = 3,
                                  .updates = first.engine.updates(),
                                  .config = config::dump_config(c),
                                  .loss_scale = first.engine.loss_scale()};
  const auto pieces = train::checkpoint_chunks(first.engine);
  const checkpoint::CheckpointResult written =
      checkpoint::write_checkpoint(dir.str(), info, pieces, 0, {});
  ASSERT_TRUE(written.ok()) << written.error;
  Training second(c);
  const checkpoint::CheckpointReader reader(written.path);
  train::restore(reader, written.path, second.engine, true);
  EXPECT_EQ(reader.manifest().loss_scale.value, first.engine.loss_scale().value);
  EXPECT_EQ(reader.manifest().loss_scale.updates, 1234);
  second.number = 3;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(first.step().loss, second.step().loss);
  first.engine.swap_average(), second.engine.swap_average();
  EXPECT_EQ(test::evaluate(first.engine, 16, text(1)).mean(),
            test::evaluate(second.engine, 16, text(1)).mean());
}

TEST(LossScale, FollowsTheRules) {
  optim::LossScale s = optim::LossScale::of_fp16();
  EXPECT_EQ(s.value, 65536);
  for (int i = 0; i < 1999; ++i) s.update(true);
  EXPECT_EQ(s.value, 65536);
  s.update(true);
  EXPECT_EQ(s.value, 131072);
  for (int i = 0; i < 1999; ++i) s.update(true);
  s.update(false);
  EXPECT_EQ(s.value, 65536);
  s.update(false);
  EXPECT_EQ(s.value, 32768);
  for (int i = 0; i < 2000; ++i) s.update(true);
  EXPECT_EQ(s.value, 65536);
  optim::LossScale fixed;
  fixed.update(false);
  EXPECT_EQ(fixed.value, 1);
}

// torch.optim.AdamW, skipped as torch.amp.GradScaler does where a gradient is not finite, and the
// average of the weights; in float64.
struct ReferenceAdamW {
  ReferenceAdamW(const train::Engine& engine, const config::OptimizerConfig& options)
      : o(options), decay(static_cast<std::size_t>(engine.optimizer().shards().elements)) {
    const auto* master = static_cast<const float*>(engine.flat().master);
    weights.assign(master, master + decay.size());
    average = weights;
    m.resize(decay.size()), v.resize(decay.size());
    const nn::ParameterSet& parameters = engine.model().parameters();
    for (const nn::PartSlice& p : parameters.slices())
      for (std::int64_t i = p.offset; i < p.offset + p.elements(); ++i)
        decay[static_cast<std::size_t>(i)] = parameters.spec(p.parameter).decay;
  }
  bool step(const float* scaled, double scale, double lr) {
    for (std::size_t i = 0; i < weights.size(); ++i)
      if (!std::isfinite(scaled[i])) return false;
    ++updates;
    const double t = static_cast<double>(updates), keep = std::min(o.ema, (1 + t) / (10 + t));
    const double correction1 = 1 - std::pow(o.beta1, t), correction2 = 1 - std::pow(o.beta2, t);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const double g = scaled[i] / scale;
      if (decay[i]) weights[i] *= 1 - lr * o.weight_decay;
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * g;
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * g * g;
      weights[i] -= lr / correction1 * m[i] / (std::sqrt(v[i]) / std::sqrt(correction2) + o.eps);
      average[i] = keep * average[i] + (1 - keep) * weights[i];
    }
    return true;
  }
  config::OptimizerConfig o;
  std::vector<char> decay;
  std::vector<double> weights, average, m, v;
  std::int64_t updates = 0;
};

double largest_difference(const std::vector<double>& expected, const void* found) {
  double most = 0;
  for (std::size_t i = 0; i < expected.size(); ++i)
    most = std::max(most, std::abs(expected[i] - static_cast<const float*>(found)[i]));
  return most;
}

// Writes a checkpoint and loads it into an engine of its own.
std::unique_ptr<train::Engine> reloaded(train::Engine& engine, const config::Config& c,
                                        std::int64_t step) {
  const test::TemporaryFolder dir;
  const auto pieces = train::checkpoint_chunks(engine);
  const checkpoint::CheckpointResult written = checkpoint::write_checkpoint(
      dir.str(), {.step = step, .updates = engine.updates(), .loss_scale = engine.loss_scale()},
      pieces, 0, {});
  EXPECT_TRUE(written.ok()) << written.error;
  auto other = std::make_unique<train::Engine>(plan::make_step_plan(c, comm::single_mesh()), 2);
  const checkpoint::CheckpointReader reader(written.path);
  train::restore(reader, written.path, *other, true);
  other->loss_scale() = reader.manifest().loss_scale;
  return other;
}

TEST(LossScale, SkippedStepsCountNeitherForAdamNorForTheAverage) {
  config::Config c = small("fp16");
  c.optimizer.grad_clip = 0;
  auto engine = std::make_unique<train::Engine>(plan::make_step_plan(c, comm::single_mesh()), 2);
  engine->initialize_parameters();
  ReferenceAdamW reference(*engine, c.optimizer);
  const std::set<int> overflows{1, 2, 7, 8, 13, 19};
  for (int number = 1; number <= 20; ++number) {
    const double lr = 3e-3 * (1 + number % 4);
    const optim::LossScale scale = engine->loss_scale();
    if (overflows.contains(number)) engine->loss_scale().value = 0x1p60;
    test::compute_gradients(*engine, number, text(number));
    const bool applied = reference.step(static_cast<const float*>(engine->flat().gradients),
                                        engine->loss_scale().value, lr);
    ASSERT_EQ(applied, !overflows.contains(number)) << number;
    EXPECT_EQ(test::train_step(*engine, number, lr, text(number)).applied, applied) << number;
    if (!applied) engine->loss_scale() = scale;
    EXPECT_EQ(engine->updates(), reference.updates);
    EXPECT_LT(largest_difference(reference.weights, engine->flat().master), 1e-6) << number;
    EXPECT_LT(largest_difference(reference.average, engine->flat().average), 1e-6) << number;
    if (number == 10) engine = reloaded(*engine, c, number);
  }
  EXPECT_EQ(engine->updates(), 14);
}

TEST(LossScale, AnOverflowSkipsTheStepAndNothingElse) {
  const config::Config c = small("fp16");
  Training calm(c), shaken(c);
  shaken.engine.loss_scale().value = 0x1p40;
  const auto* weights = static_cast<const float*>(shaken.engine.flat().master);
  const std::vector<float> before(weights, weights + shaken.engine.optimizer().shards().elements);
  int skipped = 0;
  train::StepResult r;
  for (; !(r = shaken.step()).applied; ++skipped, shaken.number = 0) {
    EXPECT_EQ(0, std::memcmp(before.data(), weights, before.size() * 4));
    EXPECT_EQ(shaken.engine.loss_scale().value, std::ldexp(1.0, 39 - skipped));
  }
  EXPECT_GT(skipped, 10);
  const train::StepResult expected = calm.step();
  EXPECT_EQ(r.loss, expected.loss);
  EXPECT_NEAR(r.grad_norm, expected.grad_norm,
              1e-3 * expected.grad_norm);  // small gradients keep more bits at a larger scale
}

}  // namespace
}  // namespace tfm
