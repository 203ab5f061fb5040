// Training steps of whole models with every kernel on the device, beside the same steps on the CPU.
// Built twice: the device is the block emulator, or a GPU.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "../ranks/find_device.h"
#include "inference/translator.h"
#include "models/registry.h"
#include "support/batch.h"
#include "support/weights.h"
#include "verify/as_run.h"

namespace tfm {
namespace {

struct Case {
  std::string name, model, precision;
  double bound;  // of the losses, relative
  std::string optimizer = "adamw";
  double lr = 1e-3;
};

const std::vector<Case> kCases{
    {"gpt2", "family: decoder, n_layers: 2, n_heads: 2, d_ff: 32, vocab_size: 37, dropout: 0.2",
     "fp32", 1e-5},
    {"llama",
     "family: decoder, n_layers: 2, n_heads: 4, n_kv_heads: 2, d_ff: 40, vocab_size: 37, position: "
     "rope, norm: rmsnorm, activation: swiglu, "
     "bias: false, tie_embeddings: false, dropout: {attention: 0.3}",
     "fp32", 1e-5},
    {"bert",
     "family: encoder, n_layers: 1, n_heads: 2, d_ff: 32, vocab_size: 37, norm_position: post, "
     "embedding_norm: true, type_vocab_size: 2, "
     "head_transform: true, activation: gelu, dropout: 0.1",
     "fp32", 1e-5},
    {"t5",
     "family: encoder_decoder, n_layers: 1, n_heads: 2, d_ff: 32, vocab_size: 37, position: "
     "relative, relative: {buckets: 8, max_distance: 12}, "
     "norm: rmsnorm, bias: false, scale_attention: false, dropout: 0.1",
     "fp32", 1e-5},
    {"transformer",
     "family: encoder_decoder, n_layers: 1, n_heads: 2, d_ff: 32, vocab_size: 37, position: "
     "sinusoidal, norm_position: post, activation: relu, "
     "scale_embeddings: true, dropout: 0.1",
     "fp32", 1e-5},
    {"gemma_bf16",
     "family: decoder, n_layers: 2, n_heads: 2, n_kv_heads: 1, d_head: 32, d_ff: 64, vocab_size: "
     "37, position: rope, norm: rmsnorm, norm_position: both, norm_plus_one: true, activation: "
     "geglu, bias: false, softcap: 4, attention: {softcap: 2, query_scalar: 8}, scale_embeddings: "
     "rounded",
     "bf16", 1e-2},
    {"gpt2_bf16",
     "family: decoder, n_layers: 2, n_heads: 1, d_head: 32, d_ff: 64, vocab_size: 37, dropout: 0.2",
     "bf16", 1e-2},
    {"gelu_bf16",
     "family: decoder, n_layers: 2, n_heads: 1, d_head: 32, d_ff: 64, vocab_size: 37, dropout: "
     "{embedding: 0.1, residual: 0.2}",
     "bf16", 1e-2},
    {"alibi_fp16",
     "family: decoder, n_layers: 1, n_heads: 2, n_kv_heads: 1, d_head: 32, d_ff: 64, vocab_size: "
     "37, position: alibi, dropout: 0.1",
     "fp16", 3e-3},
};

config::Config config_of(const Case& c, const std::string& device) {
  const bool pairs = c.model.find("encoder_decoder") != c.model.npos,
             mlm = c.model.find("family: encoder,") != c.model.npos;
  config::Config config = config::parse_config(
      "model: {d_model: 32, max_seq_len: 16, " + c.model + "}\nprecision: " + c.precision +
          "\ndevice: " + device + "\ndata: {train: {type: " +
          (pairs ? "pairs"
           : mlm ? "mlm"
                 : "tokens") +
          ", path: none.bin}}\n",
      "test",
      {"train.seq_len=16", "train.global_batch_size=4", "train.micro_batch_size=2",
       "loss.label_smoothing=0.1", "optimizer.ema=0.9", "recompute=selective",
       "optimizer.type=" + c.optimizer});
  config::resolve_for_ranks(config, 1);
  return config;
}

void fill(std::int64_t first, std::int64_t count, const BatchFields& fields) {
  for (const auto& [field, to] : fields) {
    const FieldKind kind = info_of(field).kind;
    const std::string name(info_of(field).name);
    const auto width = static_cast<std::int64_t>(to.size()) / count;
    for (std::int64_t i = 0; i < count * width; ++i) {
      const std::uint32_t word = RandomKey{9, Purpose::data, stream_of(name), 0}.word(
          static_cast<std::uint64_t>(first * width + i));
      const bool none = i % width > 11 && word % 3 == 0;
      to[static_cast<std::size_t>(i)] =
          kind == FieldKind::mask ? (none ? -1 : 0)
          : none && kind == FieldKind::label
              ? -1
              : static_cast<std::int32_t>(word % (kind == FieldKind::type ? 2 : 37));
    }
  }
}

constexpr auto weights = test::flat_weights_of;

class OnTheDevice : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!test::find_device()) GTEST_SKIP() << "no GPU";
  }
};

void expect_trained_as_by_the_cpu(const Case& c) {
  train::Engine host(plan::make_step_plan(config_of(c, "cpu"), comm::single_mesh()), 1);
  train::Engine device(plan::make_step_plan(config_of(c, "cuda"), comm::single_mesh()),
                       device::Device(std::make_shared<cuda::Stream>(0), 1));
  EXPECT_EQ(device.arena_high_water(), device.plan().memory.total());
  host.initialize_parameters();
  device.initialize_parameters();
  EXPECT_EQ(weights(host), weights(device)) << "initial weights";
  for (int step = 1; step <= 3; ++step) {
    const train::StepResult a = test::train_step(host, step, c.lr, fill),
                            b = test::train_step(device, step, c.lr, fill);
    EXPECT_TRUE(b.applied);
    EXPECT_EQ(a.tokens, b.tokens);
    EXPECT_NEAR(b.loss, a.loss, c.bound * a.loss) << "step " << step;
    EXPECT_NEAR(b.grad_norm, a.grad_norm, 10 * c.bound * a.grad_norm) << "step " << step;
  }
  host.swap_average();
  device.swap_average();
  const inference::Totals a = test::evaluate(host, 4, fill), b = test::evaluate(device, 4, fill);
  EXPECT_EQ(a.labels, b.labels);
  EXPECT_NEAR(b.mean(), a.mean(), c.bound * a.mean());
}

TEST_P(OnTheDevice, TrainsAsTheCpuDoes) { expect_trained_as_by_the_cpu(GetParam()); }

#ifdef TFM_EMULATOR_RANKS
void expect_no_memory_outside_the_plan(const Case& c) {
  for (const config::CudaGraphs graphs : {config::CudaGraphs::automatic, config::CudaGraphs::off}) {
    config::Config config = config_of(c, "cuda");
    config.cuda_graphs = graphs;
    train::Engine e(plan::make_step_plan(config, comm::single_mesh()),
                    device::Device(std::make_shared<cuda::Stream>(0), 1));
    e.initialize_parameters();
    test::train_step(e, 1, c.lr, fill);  // which measures
    const long before = emulator::runtime.scratch_allocations;
    for (int step = 2; step <= 4; ++step) test::train_step(e, step, c.lr, fill);
    test::evaluate(e, 4, fill);
    EXPECT_EQ(emulator::runtime.scratch_allocations, before)
        << "cuda_graphs: " << config::word(graphs);
  }
}
TEST_P(OnTheDevice, StepsTakeNoMemoryOutsideThePlan) {
  expect_no_memory_outside_the_plan(GetParam());
}
#endif

void expect_the_same_with_graphs(const Case& c) {
  config::Config on = config_of(c, "cuda"), off = on;
  on.cuda_graphs = config::CudaGraphs::on;
  off.cuda_graphs = config::CudaGraphs::off;
  train::Engine recorded(plan::make_step_plan(on, comm::single_mesh()),
                         device::Device(std::make_shared<cuda::Stream>(0), 1));
  train::Engine plain(plan::make_step_plan(off, comm::single_mesh()),
                      device::Device(std::make_shared<cuda::Stream>(0), 1));
  recorded.initialize_parameters();
  plain.initialize_parameters();
  for (int step = 1; step <= 4; ++step) {
    const train::StepResult a = test::train_step(recorded, step, c.lr, fill),
                            b = test::train_step(plain, step, c.lr, fill);
    EXPECT_EQ(a.loss, b.loss) << "step " << step;
    EXPECT_EQ(a.grad_norm, b.grad_norm) << "step " << step;
  }
  EXPECT_EQ(weights(recorded), weights(plain));
  EXPECT_EQ(recorded.graphs(), 2) << "the first micro-batch of a step and the last";
  EXPECT_EQ(plain.graphs(), 0);
}

TEST_P(OnTheDevice, GraphsChangeNothing) { expect_the_same_with_graphs(GetParam()); }

// tfm-verify --as-run: nothing is wrong, and a wrong gradient is named.
TEST_P(OnTheDevice, IsAsNearToFloat64AsThePlainComputation) {
  const config::Config c = config_of(GetParam(), "cuda");
  for (const double factor : {1.0, 1.2}) {
    const auto findings = verify::verify_as_run(
        c, comm::single_mesh(), device::Device(std::make_shared<cuda::Stream>(0), 1),
        [&](verify::Trace& t) {
          for (double& g : t.gradients[1]) g *= factor;
        });
    for (const verify::Finding& f : findings)
      EXPECT_EQ(f.ok(), factor == 1 || f.check != "gradient of step 1")
          << f.check << " " << f.worst << ": error " << f.error << ", bound " << f.bound;
  }
}

TEST_P(OnTheDevice, RecomputationChangesNothing) {
  std::vector<double> results[3];
  int which = 0;
  using enum config::Recompute;
  for (const config::Recompute recompute : {none, selective, full}) {
    config::Config c = config_of(GetParam(), "cuda");
    c.recompute = recompute;
    train::Engine e(plan::make_step_plan(c, comm::single_mesh()),
                    device::Device(std::make_shared<cuda::Stream>(0), 1));
    e.initialize_parameters();
    for (int step = 1; step <= 3; ++step) {
      const train::StepResult r = test::train_step(e, step, 1e-3, fill);
      results[which].insert(results[which].end(), {r.loss, r.grad_norm});
    }
    ++which;
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

// Every `every`-th position has a label.
test::FillBatch masked(std::int64_t every) {
  return [=](std::int64_t first, std::int64_t count, const BatchFields& fields) {
    fill(first, count, fields);
    const auto labels = fields.at(Field::labels);
    for (std::size_t i = 0; i < labels.size(); ++i)
      labels[i] =
          static_cast<std::int64_t>(i) % every == 0 ? static_cast<std::int32_t>(i % 37) : -1;
  };
}

class MaskedOnTheDevice : public OnTheDevice {};

TEST_P(MaskedOnTheDevice, RowsWithoutALabelAreLeftOut) {
  const Case& c = GetParam();
  config::Config plain = config_of(c, "cuda");
  plain.cuda_graphs = config::CudaGraphs::off;
  train::Engine host(plan::make_step_plan(config_of(c, "cpu"), comm::single_mesh()), 1);
  train::Engine device(plan::make_step_plan(config_of(c, "cuda"), comm::single_mesh()),
                       device::Device(std::make_shared<cuda::Stream>(0), 1));
  train::Engine unrecorded(plan::make_step_plan(plain, comm::single_mesh()),
                           device::Device(std::make_shared<cuda::Stream>(0), 1));
  for (train::Engine* e : {&host, &device, &unrecorded}) e->initialize_parameters();
  // Of 32 positions of a micro-batch: 16, all of them, 16.
  for (const int every : {8, 8, 1, 1, 7}) {
    const auto step = device.updates() + 1;
    const train::StepResult a = test::train_step(host, step, 1e-3, masked(every)),
                            b = test::train_step(device, step, 1e-3, masked(every)),
                            d = test::train_step(unrecorded, step, 1e-3, masked(every));
    EXPECT_EQ(a.tokens, b.tokens);
    EXPECT_NEAR(b.loss, a.loss, c.bound * a.loss) << "step " << step;
    EXPECT_NEAR(b.grad_norm, a.grad_norm, 10 * c.bound * a.grad_norm) << "step " << step;
    EXPECT_EQ(b.loss, d.loss) << "step " << step;
    EXPECT_EQ(b.grad_norm, d.grad_norm) << "step " << step;
  }
  EXPECT_EQ(weights(device), weights(unrecorded));
  EXPECT_EQ(device.graphs(), 4) << "two sizes, the first micro-batch of a step and the last";
  EXPECT_EQ(device.arena_high_water(), device.plan().memory.total());
  const inference::Totals a = test::evaluate(host, 4, masked(8)),
                          b = test::evaluate(device, 4, masked(8));
  EXPECT_EQ(a.labels, b.labels);
  EXPECT_NEAR(b.mean(), a.mean(), c.bound * a.mean());
#ifdef TFM_EMULATOR_RANKS
  const auto flops = [&](int every) {
    const double before = emulator::runtime.product_flops;
    test::train_step(unrecorded, unrecorded.updates() + 1, 1e-3, masked(every));
    return emulator::runtime.product_flops - before;
  };
  EXPECT_EQ(flops(1) - flops(8), 2 * 3 * 2.0 * 16 * 32 * 37) << "two micro-batches, three products";
#endif
}

INSTANTIATE_TEST_SUITE_P(Models, MaskedOnTheDevice, testing::Values(kCases[2]),
                         [](const auto& info) { return info.param.name; });

// Logits of whole sequences, and of a generation whose sequences change places after half of the
// tokens.
std::vector<double> generated(const comm::RankContext& rank_context, const nn::Model& model,
                              const inference::Weights& weights, bool decodes, bool reads_source) {
  constexpr std::int64_t sequences = 4, length = 8, together = 2, vocabulary = 37;
  std::vector<double> all;
  if (!reads_source) {
    inference::Inference whole(model, rank_context, weights, {.sequences = 2, .length = length},
                               vocabulary);
    std::vector<std::int32_t> ids(2 * length, 5);
    whole.run({{Field::ids, ids}});
    for (std::int64_t r = 0; r < 2 * length; ++r) {
      const auto row = whole.row(r);
      all.insert(all.end(), row.begin(), row.end());
    }
  }
  if (!decodes) return all;
  const nn::BatchShape shape{.sequences = sequences,
                             .length = together,
                             .source_length = reads_source ? 6 : 0,
                             .capacity = 16,
                             .beams = 2};
  const std::vector<std::byte> not_numbers(
      static_cast<std::size_t>(inference::Generation::bytes(model, shape, weights.dtype)),
      std::byte{0xff});
  device::Device device = rank_context.device;
  const auto memory = device.allocate(std::ssize(not_numbers));
  device::upload(device.stream(), memory.get(), not_numbers.data(), std::ssize(not_numbers));
  inference::Generation generation(model, rank_context, weights, shape, vocabulary,
                                   {memory.get(), not_numbers.size()});
  std::vector<std::int32_t> source(2 * 6, 3), mask(source.size(), 0);
  mask.back() = -1;
  generation.start(reads_source
                       ? BatchFields{{Field::source_ids, source}, {Field::source_mask, mask}}
                       : BatchFields{});
  for (std::int64_t t = 0; t < length;) {
    const std::int64_t tokens = t == length - together ? together : 1;
    if (t == length / 2) generation.reorder(std::vector<std::int64_t>{1, 1, 3, 2});
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < sequences * tokens; ++i)
      ids.push_back(static_cast<std::int32_t>((7 * i + 3 * t) % vocabulary));
    generation.step(ids);
    all.insert(all.end(), generation.logits().begin(), generation.logits().end());
    t += tokens;
  }
  return all;
}

TEST_P(OnTheDevice, GeneratesAsTheCpuDoes) {
  const Case& c = GetParam();
  const config::Config on_host = config_of(c, "cpu"), on_device = config_of(c, "cuda");
  train::Engine host(plan::make_step_plan(on_host, comm::single_mesh()), 1);
  train::Engine device(plan::make_step_plan(on_device, comm::single_mesh()),
                       device::Device(std::make_shared<cuda::Stream>(0), 1));
  host.initialize_parameters();
  device.initialize_parameters();
  const auto logits = [&](train::Engine& e) {
    return generated(e.rank_context(), e.model(),
                     {e.model().parameters(), e.flat().parameters, e.plan().dtype},
                     on_host.model.decodes(), on_host.model.translates());
  };
  const std::vector<double> want = logits(host), got = logits(device);
  ASSERT_EQ(want.size(), got.size());
  double largest = 0, off = 0;
  for (std::size_t i = 0; i < want.size(); ++i)
    largest = std::max(largest, std::abs(want[i])), off = std::max(off, std::abs(want[i] - got[i]));
  EXPECT_LT(off, 2 * c.bound * largest);
}

// Optimizers that look at whole parts.
class RulesOnTheDevice : public OnTheDevice {};

TEST_P(RulesOnTheDevice, TrainAsOnTheCpu) { expect_trained_as_by_the_cpu(GetParam()); }
TEST_P(RulesOnTheDevice, GraphsChangeNothing) { expect_the_same_with_graphs(GetParam()); }
#ifdef TFM_EMULATOR_RANKS
TEST_P(RulesOnTheDevice, StepsTakeNoMemoryOutsideThePlan) {
  expect_no_memory_outside_the_plan(GetParam());
}
#endif

class ScaledRulesOnTheDevice : public OnTheDevice {};
TEST_P(ScaledRulesOnTheDevice, AStepThatIsNotFiniteChangesNothing) {
  train::Engine e(plan::make_step_plan(config_of(GetParam(), "cuda"), comm::single_mesh()),
                  device::Device(std::make_shared<cuda::Stream>(0), 1));
  e.initialize_parameters();
  const optim::ShardLayout& shards = e.optimizer().shards();
  const auto contents = [&] {
    std::vector<float> all(static_cast<std::size_t>(shards.state_elements + 2 * shards.elements));
    float* to = all.data();
    for (const auto& [at, n] : {std::pair{e.flat().state, shards.state_elements},
                                std::pair{e.flat().master, shards.elements},
                                std::pair{e.flat().average, shards.elements}}) {
      device::download(e.device().stream(), to, at, n * 4);
      to += n;
    }
    return all;
  };
  for (int step = 1; step <= 4; ++step) {  // plain, recorded, replayed
    const std::vector<float> before = contents();
    const bool bad = step % 2 == 0;
    e.loss_scale().value = bad ? 0x1p120 : 1024;
    EXPECT_EQ(test::train_step(e, step, GetParam().lr, fill).applied, !bad);
    EXPECT_EQ(contents() == before, bad) << "step " << step;
  }
}

const std::string kRulesModel =
    "family: decoder, n_layers: 1, n_heads: 2, n_kv_heads: 1, d_ff: 40, vocab_size: 37, position: "
    "rope, norm: rmsnorm, activation: swiglu, tie_embeddings: false";
const std::vector<Case> kRules{{"lamb", kRulesModel, "fp32", 1e-5, "lamb", 1e-2},
                               {"adafactor", kRulesModel, "fp32", 1e-5, "adafactor", 1e-2},
                               {"muon", kRulesModel, "fp32", 1e-5, "muon"}},
    kScaledRules{{"lamb_fp16", kRulesModel, "fp16", 3e-3, "lamb", 1e-2},
                 {"adafactor_fp16", kRulesModel, "fp16", 3e-3, "adafactor", 1e-2},
                 {"muon_fp16", kRulesModel, "fp16", 3e-3, "muon"}};
INSTANTIATE_TEST_SUITE_P(Models, RulesOnTheDevice, testing::ValuesIn(kRules),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Scaled, RulesOnTheDevice, testing::ValuesIn(kScaledRules),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Models, ScaledRulesOnTheDevice, testing::ValuesIn(kScaledRules),
                         [](const auto& info) { return info.param.name; });

class TranslatesOnTheDevice : public OnTheDevice {};

// Between steps, in the memory of activations.
TEST_P(TranslatesOnTheDevice, AsTheCpuDoes) {
  const auto translations = [&](const std::string& device_name, device::Device device) {
    config::Config config =
        config::parse_config("model: {" + GetParam().model + "}\ndevice: " + device_name +
                                 "\ntrain: {seq_len: 8, global_batch_size: 1}\n"
                                 "eval: {every: 1, metrics: bleu, beam: 2}\n"
                                 "data: {train: {type: pairs, source: a, target: b}, validation: "
                                 "{type: pairs, source: a, target: b}}\n",
                             "test", {});
    config::resolve_for_ranks(config, 1);
    train::Engine e(plan::make_step_plan(config, comm::single_mesh()), std::move(device));
    e.initialize_parameters();
    test::train_step(e, 1, 1e-3, fill);
    const auto tokenizer = tokenizer::load_tokenizer("bytes");
    inference::Translator translator(*e.plan().translator, config.model, e.rank_context(),
                                     {e.model().parameters(), e.flat().parameters}, *tokenizer,
                                     inference::translation_of(config), e.idle_memory());
    return translator.translate({"a", "translation", "of", "", "some lines"});
  };
  EXPECT_EQ(translations("cpu", device::Device::cpu(1)),
            translations("cuda", device::Device(std::make_shared<cuda::Stream>(0), 1)));
}

INSTANTIATE_TEST_SUITE_P(Models, TranslatesOnTheDevice,
                         testing::Values(Case{
                             "pairs",
                             "family: encoder_decoder, vocab_size: 260, d_model: 16, n_layers: 1, "
                             "n_heads: 2, max_seq_len: 16, init_std: 0.5",
                             "fp32", 0}),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Models, OnTheDevice, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tfm
