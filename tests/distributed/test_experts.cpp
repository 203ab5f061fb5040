// Experts that ranks share: whole configurations equal a single rank, also where tokens find no
// room.
#include <gtest/gtest.h>

#include "job.h"
#include "support/batch.h"
#include "train/expert_load.h"
#include "verify/layout.h"

namespace tfm {
namespace {

using test::job;

const std::vector<std::string> kModels{
    "family: decoder, n_layers: 2, n_heads: 8, d_head: 8, d_ff: 24, vocab_size: 50, dropout: 0.2, "
    "experts: {count: 8, top_k: 2, z_loss: 1.0e-3}",
    "family: decoder, n_layers: 2, n_heads: 8, d_head: 8, d_ff: 24, vocab_size: 50, position: "
    "rope, "
    "norm: rmsnorm, activation: clamped_swiglu, bias: false, experts: {count: 16, top_k: 4, "
    "router: "
    "sigmoid, router_bias: true, jitter: 0.1, scale: 2.5, shared: 1, shared_gate: true, "
    "first_dense: 1, groups: 4, top_groups: 2, "
    "balance: {type: both, rate: 0.05}}",
    "family: encoder_decoder, n_layers: 2, n_heads: 8, d_head: 8, d_ff: 24, vocab_size: 50, "
    "position: relative, activation: relu, dropout: {ffn: 0.3}, "
    "experts: {count: 8, top_k: 1, normalize: false, every: 2}",
};

// All with several expert ranks.
std::vector<comm::Layout::Sizes> layouts() {
  const int n = job().size();
  std::vector<comm::Layout::Sizes> all;
  for (int expert = 2; expert <= n; expert *= 2)
    for (const int rest : {1, 2}) {  // ranks along another axis
      const int data = n / rest;
      if (n % (expert * rest) != 0) continue;
      if (rest == 1) all.push_back({.data = data, .expert = expert});
      if (rest == 1) continue;
      all.push_back({.data = data, .tensor = rest, .expert = expert});
      all.push_back({.data = data, .context = rest, .expert = expert});
      all.push_back({.data = data, .pipeline = rest, .expert = expert});
      all.push_back({.data = n, .replicas = rest, .expert = expert});
    }
  return all;
}

config::Config config_of(const std::string& model, const comm::Layout::Sizes& s, int zero,
                         double bound, int micro_batches = 1) {
  const std::string data = model.find("encoder_decoder") == model.npos ? "tokens" : "pairs";
  config::Config c = config::parse_config(
      "model: {d_model: 64, " + model + "}\ndata: {train: {type: " + data + ", path: none.bin}}\n",
      "test",
      {"parallel.tensor=" + std::to_string(s.tensor),
       "parallel.context=" + std::to_string(s.context),
       "parallel.pipeline=" + std::to_string(s.pipeline),
       "parallel.replicas=" + std::to_string(s.replicas),
       "parallel.expert=" + std::to_string(s.expert),
       "parallel.expert_bound=" + std::to_string(bound), "parallel.zero=" + std::to_string(zero),
       "train.seq_len=16", "train.global_batch_size=" + std::to_string(s.data * micro_batches),
       "train.micro_batch_size=1"});
  config::resolve_for_ranks(c, job().size());
  return c;
}

class Experts : public testing::TestWithParam<std::tuple<std::size_t, int>> {};

TEST_P(Experts, EqualASingleRank) {
  const auto [model, zero] = GetParam();
  for (const comm::Layout::Sizes& s : layouts()) {
    if (s.replicas > 1 && zero == 0) continue;
    const config::Config config = config_of(kModels[model], s, zero, zero == 2 ? 0 : 1.25);
    const comm::Layout layout = config::layout_of(config);
    for (const verify::Finding& f : verify::verify_layout(
             verify::shrink(config), test::mesh_of(layout), device::Device::cpu(1)))
      EXPECT_TRUE(f.ok()) << layout.str() << ": " << f.check << " " << f.worst << " " << f.error;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Experts,
                         testing::Combine(testing::Range<std::size_t>(0, kModels.size()),
                                          testing::Range(0, 4)));

void count_up(std::int64_t first, std::int64_t count, const BatchFields& fields) {
  for (const auto& [field, to] : fields) {
    const std::int64_t width = std::ssize(to) / count;
    for (std::int64_t i = 0; i < count * width; ++i)
      to[static_cast<std::size_t>(i)] = static_cast<std::int32_t>((first * width + i) * 7 % 50);
  }
}

TEST(ExpertBias, MovesTowardsAnEvenLoadAndIsNoPartOfTheNorm) {
  for (const comm::Layout::Sizes& s : layouts())
    for (const int zero : {0, 1, 3}) {
      if (s.replicas > 1 && zero == 0) continue;
      std::vector<double> norms;
      for (const std::string type : {"none", "bias"}) {
        std::string model = kModels[0];
        model.insert(model.size() - 1,
                     ", balance: {type: " + type + (type == "bias" ? ", rate: 0.125}" : "}"));
        const config::Config config = config_of(model, s, zero, 0, 4);
        train::Engine engine(plan::make_step_plan(config, test::mesh_of(config::layout_of(config))),
                             1);
        engine.initialize_parameters();
        const train::StepResult r = test::train_step(engine, 1, 1e-3, count_up);
        norms.push_back(r.grad_norm);
        train::ExpertLoad load(engine);
        load.gather(engine, r.shape);
        const std::shared_ptr<std::byte> memory = engine.whole_parameters();
        const nn::ParameterSet& parameters = engine.model().parameters();
        std::size_t biases = 0;
        for (int i = 0; i < parameters.size(); ++i) {
          if (!parameters.spec(i).evens_load || !parameters.owned(i)) continue;
          const std::string& name = parameters.spec(i).parts[0].name;
          const auto layer = std::ranges::find_if(load.layers(), [&](const auto& l) {
            return name == l.name + ".ffn.router.load_bias";
          });
          ASSERT_NE(layer, load.layers().end()) << name;
          const float* const bias = parameters.view(i, memory.get(), DType::f32).ptr<float>();
          for (std::size_t e = 0; e < layer->loads.size(); ++e, ++biases)
            EXPECT_EQ(bias[e], layer->loads[e] > 1   ? -0.125F
                               : layer->loads[e] < 1 ? 0.125F
                                                     : 0)
                << name << " " << layer->loads[e] << " " << comm::Layout(s).str();
        }
        EXPECT_EQ(biases > 0, type == "bias");
      }
      EXPECT_EQ(norms[0], norms[1]) << comm::Layout(s).str();
    }
}

TEST(ExpertRoom, StepsAreRepeatedUntilThereIsRoomAndNotAgain) {
  for (const comm::Layout::Sizes& s : layouts()) {
    if (s.replicas > 1) continue;
    std::vector<std::vector<double>> losses;
    for (const double bound : {0.0, 0.25}) {
      const config::Config config = config_of(kModels[0], s, 1, bound, 16);
      const comm::Mesh& mesh = test::mesh_of(config::layout_of(config));
      train::Engine engine(plan::make_step_plan(config, mesh), 1);
      engine.initialize_parameters();
      auto& of_run = losses.emplace_back();
      for (int step = 1; step <= 4; ++step) {
        const train::StepResult r = test::train_step(engine, step, 1e-3, count_up);
        of_run.insert(of_run.end(), {r.loss, r.grad_norm});
        EXPECT_TRUE(r.applied);
      }
      EXPECT_EQ(engine.replans() > 0, bound > 0) << mesh.layout.str();
      EXPECT_LE(engine.replans(), 3);
      EXPECT_EQ(engine.updates(), 4);
      EXPECT_EQ(engine.plan().config.parallel.expert_bound > bound, bound > 0);
      EXPECT_EQ(engine.arena_high_water(), engine.plan().memory.total());
    }
    EXPECT_EQ(losses[0], losses[1]) << comm::Layout(s).str();
  }
}

// Their logits are NaN, so that all tokens go to the first experts.
TEST(ExpertRoom, StepsThatHaveDivergedNeedNone) {
  for (const comm::Layout::Sizes& s : layouts()) {
    if (s.replicas > 1) continue;
    const config::Config config = config_of(kModels[0], s, 0, 1.25, 16);
    train::Engine engine(plan::make_step_plan(config, test::mesh_of(config::layout_of(config))), 1);
    engine.initialize_parameters();
    EXPECT_TRUE(test::train_step(engine, 1, 1e30, count_up).applied);
    const double bound = engine.plan().config.parallel.expert_bound;
    EXPECT_FALSE(test::train_step(engine, 2, 1e-3, count_up).applied);
    EXPECT_EQ(engine.plan().config.parallel.expert_bound, bound) << comm::Layout(s).str();
  }
}

}  // namespace
}  // namespace tfm
