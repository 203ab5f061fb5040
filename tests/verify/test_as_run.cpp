// verify_as_run(): its reference is a float64 step, its rounding that of the precision, its size
// what fits, and it names what is wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <span>

#include "verify/as_run.h"
#include "verify/bounds.h"
#include "verify/gradient_check.h"
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

// The ranges of all fields, ends included, in as many draws that none is left out.
TEST(SyntheticData, EveryFieldHasItsRange) {
  config::Config c = run_config({});
  c.model.type_vocab_size = 3;
  c.model.source_vocab_size = 19;
  c.model.heads = {{.type = "classify", .classes = 5}, {.type = "tag", .classes = 4}};
  const struct {
    Field field;
    std::int32_t least, most;
  } cases[] = {{Field::ids, 0, 30},          {Field::labels, -1, 30},
               {Field::token_types, 0, 2},   {Field::source_ids, 0, 18},
               {Field::token_labels, -1, 3}, {Field::sentence_labels, 0, 4},
               {Field::prefix, 0, 8}};
  const std::int64_t sequences = 500;
  const verify::SyntheticData data(c, sequences, 2);
  for (const auto& f : cases) {
    const std::int64_t width = info_of(f.field).width == FieldWidth::one ? 1 : 8;
    std::vector<std::int32_t> all(static_cast<std::size_t>(sequences * width)), next = all,
                                                                                part(2 * width);
    data.fill(0, 0, sequences, {{f.field, all}});
    EXPECT_EQ(std::ranges::min(all), f.least) << info_of(f.field).name;
    EXPECT_EQ(std::ranges::max(all), f.most) << info_of(f.field).name;
    data.fill(1, 0, sequences, {{f.field, next}});
    EXPECT_NE(all, next) << info_of(f.field).name << ": batches differ";
    // Whoever fills a sequence fills it alike.
    data.fill(0, 3, 2, {{f.field, part}});
    EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + 3 * width))
        << info_of(f.field).name;
    if (f.least < 0) {
      for (std::size_t i = 0; i < all.size(); i += 8) EXPECT_GE(all[i], 0) << "at least one label";
      EXPECT_NEAR(static_cast<double>(std::ranges::count(all, -1)), 500, 120);
    }
  }
  std::vector<std::int32_t> bits(500);
  data.fill(0, 0, 500, {{Field::numbers, bits}});
  std::set<float> numbers;
  for (const std::int32_t b : bits) numbers.insert(std::bit_cast<float>(b));
  EXPECT_EQ(numbers.size(), 16u);
  EXPECT_EQ(*numbers.begin(), 0);
  EXPECT_EQ(*numbers.rbegin(), 15.0f / 8);
  c.model.heads.clear();
  data.fill(0, 0, 500, {{Field::sentence_labels, bits}});
  EXPECT_EQ(std::ranges::max(bits), 1) << "whether a sentence is the next one";
}

TEST(SyntheticData, DocumentsHaveFiveTokensAndPairsTheirPositive) {
  config::Config c = run_config({});
  const verify::SyntheticData data(c, 40, 1);
  std::vector<std::int32_t> mask(40 * 16);
  data.fill(0, 0, 40, {{Field::source_mask, mask}});
  for (std::size_t i = 0; i < 40; ++i) {
    const auto row = std::span(mask).subspan(i * 16, 16);
    const auto real = 16 - std::ranges::count(row, -1);
    EXPECT_GE(real, 12) << "at most a quarter is padding";
    for (std::int64_t at = 0; at < 16; ++at)
      EXPECT_EQ(row[static_cast<std::size_t>(at)], at < real ? at / 5 : -1) << i << " " << at;
  }
  const auto positives = [&](bool negatives, std::int64_t group) {
    c.data.train.negative = negatives ? "negative" : "";
    c.model.heads = {{.type = "embed", .group = group}};
    std::vector<std::int32_t> values(12);
    data.fill(0, 0, 12, {{Field::positives, values}});
    return values;
  };
  using Values = std::vector<std::int32_t>;
  EXPECT_EQ(positives(false, 0), (Values{0, -1, 1, -1, 2, -1, 3, -1, 4, -1, 5, -1}));
  EXPECT_EQ(positives(false, 3), (Values{0, -1, 1, -1, 2, -1, 0, -1, 1, -1, 2, -1}));
  EXPECT_EQ(positives(true, 2), (Values{0, -1, -1, 2, -1, -1, 0, -1, -1, 2, -1, -1}));
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

// 3 (1 + 2 / sqrt(elements)) of what rounding does, kinks, and 2^-30 of the whole norm, relative to
// the part or a millionth of the whole; and 2^-20.
TEST(AsRun, BoundsAreWhatTheirEquationSays) {
  struct Case {
    verify::PartNorms part;
    double norm, error, bound;
  };
  const double sums = 0x1p-20, residue = 0x1p-30;
  for (const Case& c : {
           Case{{.reference = 4, .run = 9, .elements = 4, .whole_elements = 4}, 2, 1.5, residue},
           {{.reference = 4, .plain = 1e-6, .elements = 4, .whole_elements = 4}, 0, 0, 3e-3},
           {{.reference = 4, .plain = 1e-6, .elements = 1, .whole_elements = 4}, 0, 0, 4.5e-3},
           {{.reference = 4, .plain = 1e-6, .elements = 16, .whole_elements = 16}, 0, 0, 2.25e-3},
           {{.reference = 4, .kinks = 1e-6, .elements = 4, .whole_elements = 4}, 0, 0, 5e-4},
           // A quarter of the whole part, whose rounding is more than four times the quarter's own.
           {{.reference = 4,
           .plain = 1e-6,
           .whole_plain = 16e-6,
           .elements = 4,
           .whole_elements = 16},
            0,
            0,
            6e-3},
           {{.reference = 4,
           .plain = 9e-6,
           .whole_plain = 16e-6,
           .elements = 4,
           .whole_elements = 16},
            0,
            0,
            9e-3},
           {{.run = 1e-16, .elements = 4, .whole_elements = 4}, 1e-2, 1, residue * 1e6},
           {{.elements = 0, .whole_elements = 4}, 0, 0, 0},
       }) {
    const verify::Deviation d = verify::of_gradient(c.part, c.norm);
    EXPECT_NEAR(d.error, c.error, 1e-12);
    EXPECT_NEAR(d.bound, c.bound + sums, 1e-12 + 1e-9 * c.bound);
  }
}

// SGD without momentum: w - lr g. The bound: a unit of the weight, twelve of the step and the rate,
// and eight of the gradient.
TEST(AsRun, UpdatesMayBeOffByRounding) {
  config::OptimizerConfig sgd;
  sgd.type = config::OptimizerType::sgd;
  sgd.momentum = sgd.weight_decay = 0;
  const auto rule = optim::make_rule(sgd);
  const double unit = 0x1p-23, w = 2, g = 0.5, lr = 0.01;
  const auto deviation = [&](std::initializer_list<double> errors, double norm) {
    verify::UpdateCheck check(*rule);
    for (const double e : errors) check.add({.weight = w, .gradient = g, .lr = lr}, w - lr * g + e);
    return check.deviation(norm);
  };
  const double bound = unit * ((w - lr * g) + 12 * (lr * g + lr) + 8 * lr * g);
  EXPECT_NEAR(deviation({3e-4}, 2).error, 1.5e-4, 1e-12);
  EXPECT_NEAR(deviation({3e-4}, 2).bound, bound / 2, 1e-6 * bound);
  EXPECT_NEAR(deviation({3e-4, -4e-4}, 1).error, 5e-4, 1e-12) << "squares are added";
  EXPECT_NEAR(deviation({0, 0, 0, 0}, 1).bound, 2 * bound, 1e-6 * bound);
  EXPECT_EQ(deviation({0}, 0).error, 0);
}

TEST(AsRun, TheWorstPartIsThatOfTheHighestShareOfItsBound) {
  const config::Config c = run_config({});
  const auto parts = plan::make_step_plan(c, comm::single_mesh()).model().parameters().slices();
  const auto worst = [&](std::vector<verify::Deviation> deviations) {
    return verify::worst_part("all", comm::single_mesh(), parts, {4, 2, 0}, deviations);
  };
  const verify::Finding far = worst({{0.5, 1}, {1e-3, 1e-4}, {0.9, 1}});
  EXPECT_EQ(far.worst, parts[2].name);
  EXPECT_EQ(far.error, 1e-3);
  EXPECT_EQ(far.bound, 1e-4);
  EXPECT_EQ(far.ranks, std::vector<int>{0});
  const verify::Finding within = worst({{1, 1}, {0.5, 1}, {0, 0}});
  EXPECT_EQ(within.worst, parts[4].name);
  EXPECT_TRUE(within.ok()) << "as large as its bound";
  EXPECT_TRUE(within.ranks.empty());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(worst({{2, 1}, {nan, 1e9}, {0, 0}}).worst, parts[2].name);
  EXPECT_FALSE(worst({{0, 1}, {nan, 1e9}, {0, 0}}).ok());
}

// Half of the distance from 1 to the next number: of 8, 11, and 24 - 3 bits.
TEST(ReferenceStep, UnitsOfRounding) {
  EXPECT_EQ(verify::rounding_unit(DType::bf16), 1.0 / 256);
  EXPECT_EQ(verify::rounding_unit(DType::f16), 1.0 / 2048);
  EXPECT_EQ(verify::rounding_unit(DType::f32), 1.0 / (1 << 21));
}

TEST(ReferenceStep, IsOfOneSequenceAtATimeButForPairsThatAreComparedWithAll) {
  const config::Config c =
      run_config({"recompute=full", "parallel.bucket_bytes=4Ki", "optimizer.ema=0.9",
                  "optimizer.type=adamw", "train.micro_batch_size=4"});
  const config::Config reference = verify::ReferenceStep::configuration(c);
  EXPECT_EQ(reference.train.micro_batch_size, 1);
  EXPECT_EQ(reference.train.global_batch_size, 4);
  EXPECT_EQ(reference.recompute, config::Recompute::none);
  EXPECT_EQ(reference.device, config::DeviceKind::cpu);
  EXPECT_EQ(reference.parallel.data, 1);
  EXPECT_EQ(reference.parallel.bucket_bytes, 4096);
  EXPECT_EQ(reference.optimizer.ema, 0);
  for (const auto& [group, size] : {std::pair{"auto", 8}, {"2", 4}}) {
    config::Config pairs = config::parse_config(
        "model: {family: encoder, vocab_size: 300, d_model: 16, n_layers: 1, n_heads: 2, "
        "heads: [{type: embed, group: " +
            std::string(group) +
            "}]}\n"
            "train: {global_batch_size: 8, micro_batch_size: " +
            std::to_string(size) +
            ", seq_len: 8}\n"
            "data: {train: {type: labelled, path: a.tsv, text_pair: b}}\n",
        "test", {});
    config::resolve_for_ranks(pairs, 1);
    EXPECT_EQ(verify::ReferenceStep::configuration(pairs).train.micro_batch_size, size);
  }
}

// Powers of two do not change what numbers are rounded to.
TEST(GradientCheck, SaysTheSameWhateverTheLossScale) {
  for (const std::string activation : {"relu", "gelu"}) {
    const config::Config c = run_config({"model.activation=" + activation, "precision=bf16"});
    train::Engine engine(plan::make_step_plan(c, comm::single_mesh()), 1);
    verify::ReferenceStep reference(c, 1);
    reference.set_weights(weights_of(reference.parameters()));
    const verify::RankSlices slices(engine, reference.parameters(), comm::single_mesh());
    const verify::GradientCheck plain(reference, slices, 1, 1), scaled(reference, slices, 1, 4096);
    EXPECT_NEAR(scaled.loss, plain.loss, 1e-12);
    EXPECT_NEAR(scaled.norm, plain.norm, 1e-12);
    EXPECT_NEAR(scaled.plain_loss, plain.plain_loss, 1e-3 * plain.plain_loss);
    EXPECT_NEAR(scaled.plain_norm, plain.plain_norm, 1e-3 * plain.plain_norm);
    reference.compute(1, 1, {});
    const std::vector<double> all = gradients_of(reference);
    reference.compute(1, 1, {}, 2 * verify::rounding_unit(DType::bf16));
    EXPECT_EQ(distance(gradients_of(reference), all) > 0, activation == "relu") << "no kink";
    for (std::size_t i = 0; i < slices.size(); ++i) {
      const auto at = all.begin() + reference.parameters().slices()[slices.part(i)].offset;
      std::vector<double> exact(at, at + slices[i].elements());
      EXPECT_LT(plain.of(i, exact).error, 1e-12);
      for (double& g : exact) g *= 1.25;
      const verify::Deviation a = plain.of(i, exact), b = scaled.of(i, exact);
      EXPECT_NEAR(b.error, a.error, 1e-9);
      EXPECT_NEAR(b.bound, a.bound, 1e-3 * a.bound) << slices[i].name;
      EXPECT_LE(a.error, 0.25 * (1 + 1e-9));
    }
  }
}

// The norm by each of three grids, and by inputs of relu within two units of 0.
TEST(GradientCheck, TheNormHasRoomForRoundingAndKinks) {
  for (const std::string activation : {"relu", "gelu"}) {
    const config::Config c = run_config({"model.activation=" + activation, "precision=bf16"});
    train::Engine engine(plan::make_step_plan(c, comm::single_mesh()), 1);
    verify::ReferenceStep reference(c, 1);
    reference.set_weights(weights_of(reference.parameters()));
    const verify::RankSlices slices(engine, reference.parameters(), comm::single_mesh());
    const verify::GradientCheck check(reference, slices, 1, 1);
    const auto norm = [&](std::optional<verify::ReferenceStep::Grid> grid, double kinks) {
      reference.compute(1, 1, grid, kinks);
      double sum = 0;
      for (const double g : gradients_of(reference)) sum += g * g;
      return std::sqrt(sum);
    };
    const double exact = norm({}, 0), kinks = std::abs(norm({}, 2 * 0x1p-8) - exact);
    double rounded = 0;
    for (const double grid : {1.0, 1.1892, 1.6818})
      rounded = std::max(rounded, std::abs(norm(verify::ReferenceStep::Grid{grid}, 0) - exact));
    EXPECT_NEAR(check.norm, exact, 1e-12 * exact);
    EXPECT_EQ(kinks > 0, activation == "relu");
    EXPECT_NEAR(check.plain_norm, rounded + kinks, 1e-9 * exact);
  }
}

// The loss may be off by twice what the plain computation is, the norm by thrice, and either by as
// many units of the precision.
TEST(AsRun, NumbersMayBeOffByTheirRounding) {
  const config::Config c = run_config({"model.activation=relu"});
  verify::ReferenceStep reference(c, 1);
  const double unit = 0x1p-21;
  std::map<std::string, verify::Finding> before;
  for (const verify::Finding& f :
       verify::verify_as_run(c, comm::single_mesh(), device::Device::cpu(1)))
    before[f.check] = f;
  for (const std::string step : {" of step 1", " of step 2"}) {
    EXPECT_GE(before.at("loss" + step).bound, 2 * unit);
    EXPECT_LT(before.at("loss" + step).bound, 16 * unit);
    EXPECT_GE(before.at("gradient norm" + step).bound, 3 * unit);
    EXPECT_LT(before.at("gradient norm" + step).bound, 100 * unit);
    EXPECT_TRUE(before.contains("gradient" + step));
  }
  for (const char* once : {"update of step 1", "replicas on all ranks", "recompute on vs. off"})
    EXPECT_TRUE(before.contains(once)) << once;
  EXPECT_EQ(before.size(), 9u);
  const double bound = before.at("loss of step 1").bound;
  for (const double times : {0.5, 1.5}) {
    const auto wrong = found_in(c, [&](verify::Trace& t) { t.losses[0] *= 1 + times * bound; });
    EXPECT_EQ(wrong.count("loss of step 1"), times > 1 ? 1u : 0u) << times;
  }
}

// Beside memory of the two plans: three copies of the whole model and four of this rank's, of eight
// bytes.
TEST(AsRun, MemoryIsThatOfBothRunsAndTheirCopies) {
  const config::Config c = run_config({});
  const verify::AsRunSize size =
      verify::as_run_size(c, comm::single_mesh(), std::numeric_limits<std::int64_t>::max());
  const plan::StepPlan run = plan::make_step_plan(size.config, comm::single_mesh()),
                       reference =
                           plan::make_step_plan(verify::ReferenceStep::configuration(size.config),
                                                comm::single_mesh(), DType::f64);
  EXPECT_EQ(size.bytes, run.memory.total() + reference.memory.total() +
                            (3 + 4) * 8 * run.model().parameters().flat_elements());
  EXPECT_EQ(size.available, std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(size.config.eval.every, 0);
  config::Config one = c;
  one.train.global_batch_size = 2;
  EXPECT_EQ(verify::as_run_size(one, comm::single_mesh(), 0).config.train.global_batch_size, 2)
      << "not more than the configuration has";
}

}  // namespace
}  // namespace tfm
