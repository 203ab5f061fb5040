// verify_as_run(): its reference is a float64 step, its rounding that of the precision, its size
// what fits, and it names what is wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "verify/as_run.h"
#include "verify/bounds.h"
#include "verify/reference_step.h"

namespace tfm {
namespace {

config::Config run_config(std::vector<std::string> overrides) {
  overrides.insert(overrides.end(),
                   {"train.seq_len=8", "train.global_batch_size=4", "train.micro_batch_size=2"});
  config::Config c = config::parse_config(
      "model: {family: decoder, vocab_size: 31, d_model: 32, n_layers: 3, n_heads: 2, d_ff: 24, "
      "dropout: 0.1}\n"
      "data: {train: {type: tokens, path: none.bin}}\n",
      "test", overrides);
  config::resolve_for_ranks(c, 1);
  return c;
}

std::vector<std::vector<double>> weights_of(const nn::ParameterSet& parameters) {
  std::vector<double> flat(static_cast<std::size_t>(parameters.flat_elements()));
  parameters.initialize(5, flat.data(), 1);
  std::vector<std::vector<double>> parts;
  for (const nn::PartSlice& p : parameters.slices())
    parts.emplace_back(flat.begin() + p.offset, flat.begin() + p.offset + p.elements());
  return parts;
}

std::vector<double> gradients_of(const verify::ReferenceStep& r) {
  return {r.gradients(), r.gradients() + r.parameters().flat_elements()};
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double d = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    d += (a[i] - b[i]) * (a[i] - b[i]), size += b[i] * b[i];
  return std::sqrt(d / size);
}

TEST(SyntheticData, PadsBehindAtLeastOneKey) {
  const config::Config c = run_config({});
  std::vector<std::int32_t> mask(8 * 16);
  verify::SyntheticData(c, 8, 1).fill(0, 0, 8, {{Field::mask, mask}});
  int padding = 0;
  for (std::size_t i = 0; i < mask.size(); ++i) {
    padding += mask[i] < 0;
    if (i % 16 == 0) {
      EXPECT_GE(mask[i], 0) << i;
    } else if (mask[i - 1] < 0) {
      EXPECT_LT(mask[i], 0) << i;
    }
  }
  EXPECT_GT(padding, 0);
}

TEST(ReferenceStep, IsAStepOfTheEngineInFloat64) {
  const config::Config c = run_config({});
  verify::ReferenceStep reference(c, 1);
  const auto parts = weights_of(reference.parameters());
  reference.set_weights(parts);
  train::Engine engine(plan::make_step_plan(c, comm::single_mesh(), DType::f64), 1);
  const nn::PartSlice* const slices = engine.model().parameters().slices().data();
  engine.set_weights([&](const nn::PartSlice& p, std::int64_t first, std::int64_t count,
                         void* out) {
    nn::ParameterSet::scatter(p, first, count, parts[static_cast<std::size_t>(&p - slices)].data(),
                              static_cast<double*>(out));
  });
  const verify::SyntheticData data(c, 4, 2);
  data::DataLoader loader = engine.training_loader(data);
  for (const std::int64_t step : {1, 2}) {
    const double loss = reference.compute(step, 64, {});
    const train::StepResult r = engine.compute_gradients(step, loader.load(step - 1));
    EXPECT_NEAR(loss, r.loss, 1e-12 * r.loss);
    const auto* flat = static_cast<const double*>(engine.flat().gradients);
    std::vector<double> expected(flat, flat + reference.parameters().flat_elements());
    for (double& g : expected) g *= 64;
    EXPECT_LT(distance(gradients_of(reference), expected), 1e-12);
  }
}

TEST(ReferenceStep, RoundsEachResultToThePrecision) {
  std::map<std::string, double> errors;
  for (const std::string precision : {"bf16", "fp16", "fp32"}) {
    verify::ReferenceStep reference(run_config({"precision=" + precision}), 1);
    reference.set_weights(weights_of(reference.parameters()));
    reference.compute(1, 1024, {});
    const std::vector<double> exact = gradients_of(reference);
    std::vector<std::vector<double>> rounded;
    for (const double scale : {1.0, 1.3, 1.0}) {
      reference.compute(1, 1024, verify::ReferenceStep::Grid{scale});
      rounded.push_back(gradients_of(reference));
    }
    EXPECT_EQ(rounded[0], rounded[2]);
    errors[precision] = distance(rounded[0], exact);
    EXPECT_NEAR(distance(rounded[1], exact), errors[precision], 0.3 * errors[precision])
        << "as large";
    EXPECT_GT(distance(rounded[0], rounded[1]), errors[precision]) << "but another";
  }
  // 8, 11 and 21 significant bits.
  EXPECT_NEAR(errors["bf16"] / errors["fp16"], 8, 2);
  EXPECT_NEAR(errors["fp16"] / errors["fp32"], 1024, 256);
  EXPECT_GT(errors["bf16"], verify::rounding_unit(DType::bf16) / 2);
  EXPECT_LT(errors["bf16"], 10 * verify::rounding_unit(DType::bf16));
}

TEST(ReferenceStep, CrossesTheKinksOfRelu) {
  const auto crossed = [](const std::string& activation, double kinks) {
    verify::ReferenceStep reference(run_config({"model.activation=" + activation}), 1);
    reference.set_weights(weights_of(reference.parameters()));
    const double loss = reference.compute(1, 1, {});
    const std::vector<double> exact = gradients_of(reference);
    EXPECT_EQ(reference.compute(1, 1, {}, kinks), loss);
    return distance(gradients_of(reference), exact);
  };
  EXPECT_EQ(crossed("relu", 1e-12), 0);
  const double few = crossed("relu", 1e-3), many = crossed("relu", 1e-2);
  EXPECT_GT(few, 1e-4);
  EXPECT_GT(many, few);
  EXPECT_LT(many, 0.3);
  EXPECT_EQ(crossed("gelu", 1e-2), 0);
}

TEST(AsRun, TakesAsManyLayersAsFit) {
  const config::Config c = run_config({"model.n_layers=9", "train.global_batch_size=12"});
  const comm::Mesh mesh = comm::single_mesh();
  std::int64_t last = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t layers = 9; layers >= 1; --layers) {
    const verify::AsRunSize size = verify::as_run_size(c, mesh, last);
    EXPECT_EQ(size.layers, layers);
    EXPECT_EQ(size.configured, 9);
    EXPECT_EQ(size.config.model.n_layers, layers);
    EXPECT_EQ(size.config.model.d_model, 32) << "full width";
    EXPECT_EQ(size.config.train.global_batch_size, 4) << "two micro-batches";
    EXPECT_LE(size.bytes, last);
    last = size.bytes - 1;
  }
  EXPECT_EQ(verify::as_run_size(c, mesh, 0).layers, 1) << "tried all the same";
}

// check -> the tensor that it names, of those that found something.
std::map<std::string, std::string> found_in(const config::Config& config,
                                            const std::function<void(verify::Trace&)>& change) {
  std::map<std::string, std::string> wrong;
  for (const verify::Finding& f :
       verify::verify_as_run(config, comm::single_mesh(), device::Device::cpu(1), change))
    if (!f.ok()) wrong[f.check] = f.worst;
  return wrong;
}
std::map<std::string, std::string> found(const std::string& precision,
                                         const std::function<void(verify::Trace&)>& change) {
  return found_in(run_config({"precision=" + precision, "recompute=full"}), change);
}

TEST(AsRun, FindsNothingInAnUpdateWithoutClipping) {
  for (const char* clip : {"optimizer.grad_clip=0", "optimizer.grad_clip=1e-3"})
    EXPECT_EQ(found_in(run_config({clip}), [](verify::Trace&) {}),
              (std::map<std::string, std::string>{}))
        << clip;
}

TEST(AsRun, BoundsAreOfRoundingAndKinks) {
  verify::PartNorms n{.reference = 4, .run = 1e-4, .elements = 1 << 20, .whole_elements = 1 << 20};
  verify::Deviation d = verify::of_gradient(n, 2);
  EXPECT_DOUBLE_EQ(d.error, 1e-2 / 2);
  EXPECT_LT(d.bound, 1e-5);
  n.kinks = 1e-6;
  EXPECT_NEAR(verify::of_gradient(n, 2).bound, 1e-3 / 2 + d.bound, 1e-12);
}

TEST(AsRun, WhatHasToBeExactIsWorseThanAnyRounding) {
  const config::Config c = run_config({});
  const auto parts = plan::make_step_plan(c, comm::single_mesh()).model().parameters().slices();
  const std::vector<std::size_t> place{0, 1, 2};
  const verify::Finding f = verify::worst_part("copies", comm::single_mesh(), parts, place,
                                               {{0.9, 1}, {1e-9, 0}, {0, 0}});
  EXPECT_EQ(f.worst, parts[1].name);
  EXPECT_EQ(f.ranks, std::vector<int>{0});
  EXPECT_FALSE(f.ok());
}

TEST(AsRun, NamesWhatIsWrong) {
  using Found = std::map<std::string, std::string>;
  const std::string gradient = "gradient of step 1", name = "layers.0.attention_norm.weight";
  const config::Config c = run_config({});
  const auto model = plan::make_step_plan(c, comm::single_mesh()).model().parameters().slices();
  std::size_t part = 0;
  while (model.at(part).name != name) ++part;
  for (const std::string precision : {"fp32", "bf16", "fp16"}) {
    EXPECT_EQ(found(precision, [](verify::Trace&) {}), Found{});
    EXPECT_EQ(found(precision,
                    [&](verify::Trace& t) {
                      for (double& g : t.gradients[part]) g *= 1.06;
                    }),
              (Found{{gradient, name}}));
    EXPECT_EQ(found(precision,
                    [&](verify::Trace& t) {
                      t.gradients[part][3] = std::numeric_limits<double>::quiet_NaN();
                    }),
              (Found{{gradient, name}}));
    EXPECT_EQ(found(precision, [](verify::Trace& t) { t.losses[0] *= 1.03; }),
              (Found{{"loss of step 1", ""}}));
    EXPECT_EQ(found(precision, [](verify::Trace& t) { t.norms[0] *= 1.05; }),
              (Found{{"gradient norm of step 1", ""}}));
  }
}

}  // namespace
}  // namespace tfm
