// Every rule of optimizer.type on every layout: against PyTorch
// (tests/fixtures/make_optimizers.py), against one rank, and through checkpoints of other layouts.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "checkpoint/checkpoint.h"
#include "job.h"
#include "models/registry.h"
#include "shared_folder.h"
#include "support/batch.h"
#include "support/model_fixture.h"
#include "train/engine_state.h"
#include "verify/layout.h"

namespace tfm {
namespace {

using test::Fixture;
using test::job;

std::string where(const comm::Layout& layout, int zero) {
  return layout.str() + ", ZeRO " + std::to_string(zero);
}

bool divides(const config::ModelConfig& m, const comm::Layout& layout) {
  return m.n_heads % layout[comm::Axis::tensor] == 0 &&
         m.n_kv_heads % layout[comm::Axis::tensor] == 0 && m.d_ff % layout[comm::Axis::tensor] == 0;
}

// f(mesh, zero, description) on each layout on which the model of a fixture runs.
template <class F>
void each_layout(const config::ModelConfig& m, std::initializer_list<int> stages, F&& f) {
  for (const comm::Layout& layout : test::layouts())
    for (const int zero : stages)
      if (divides(m, layout) && (job().size() <= 4 || zero % 3 == 0))
        f(test::mesh_of(layout), zero, where(layout, zero));
}

std::vector<std::string> overrides(const comm::Layout& layout, int zero,
                                   std::vector<std::string> more = {}) {
  more.insert(more.end(), {"parallel.tensor=" + std::to_string(layout[comm::Axis::tensor]),
                           "parallel.zero=" + std::to_string(zero), "parallel.bucket_bytes=8Ki"});
  return more;
}

// A step on the fixture's tokens.
train::StepResult step_on(train::Engine& engine, const Fixture& f,
                          const std::vector<std::int64_t>& tokens, std::int64_t step) {
  const std::int64_t T = f.config().train.seq_len, G = f.config().train.global_batch_size;
  return test::train_step(engine, step, plan::schedule_of(f.config()).at(step),
                          [&](std::int64_t first, std::int64_t count, const BatchFields& fields) {
                            for (std::int64_t i = 0; i < count * T; ++i) {
                              const auto at =
                                  static_cast<std::size_t>(((step - 1) * G + first) * T + i);
                              fields.at(Field::ids)[static_cast<std::size_t>(i)] =
                                  static_cast<std::int32_t>(tokens[at]);
                              fields.at(Field::labels)[static_cast<std::size_t>(i)] =
                                  static_cast<std::int32_t>(tokens[at + 1]);
                            }
                          });
}

// This rank's share of a part, out of the whole.
std::vector<float> slice_of(nn::PartSlice p, const std::vector<float>& whole) {
  std::vector<float> slice(static_cast<std::size_t>(p.elements()));
  p.offset = 0;
  nn::ParameterSet::scatter(p, whole.data(), slice.data());
  return slice;
}

class Optimizers : public testing::TestWithParam<std::string> {};

TEST_P(Optimizers, TwentyStepsOnEveryLayoutAsInPyTorch) {
  const config::ModelConfig model = Fixture(GetParam()).config().model;
  int compared = 0;
  each_layout(model, {0, 1, 2, 3}, [&](const comm::Mesh& mesh, int zero, const std::string& on) {
    const Fixture f(GetParam(), overrides(mesh.layout, zero), job().size());
    train::Engine engine(plan::make_step_plan(f.config(), mesh), 1);
    f.load_parameters(engine);
    const auto tokens = f.get<std::int64_t>("tokens");
    const auto losses = f.get<double>("losses"), norms = f.get<double>("grad_norms");
    for (std::int64_t s = 1; s <= 20; ++s) {
      const train::StepResult r = step_on(engine, f, tokens, s);
      const auto at = static_cast<std::size_t>(s - 1);
      EXPECT_NEAR(r.loss, losses[at], 1e-5 * losses[at]) << on << ", step " << s;
      EXPECT_NEAR(r.grad_norm, norms[at], 1e-4 * norms[at]) << on << ", step " << s;
    }
    const auto parameters = engine.whole_parameters();
    const auto* flat = reinterpret_cast<const float*>(parameters.get());
    for (const nn::PartSlice& p : engine.model().parameters().slices()) {
      // Its gradient is zero, see make_optimizers.py.
      if (p.name.ends_with("key.bias") && model.position != config::Position::rope) continue;
      const auto whole = f.get<float>("final." + p.name);
      std::vector<float> expected = slice_of(p, whole);
      for (std::size_t i = 0; i < expected.size(); ++i)
        expected[i] -= flat[p.offset + static_cast<std::int64_t>(i)];
      EXPECT_LE(test::norm(expected), 1e-5 * test::norm(whole)) << on << ": " << p.name;
    }
    ++compared;
  });
  EXPECT_GE(compared, job().size() <= 4 ? 8 - 4 * (job().size() == 1) : 2);
}

// Where a run may go on: ranks that train together, or each rank on its own.
struct Place {
  comm::Mesh mesh;
  int zero;
  int ranks;
  std::string name;
};

class Resumed : public testing::TestWithParam<std::string> {};

// Saved after ten steps in one place, each run continues in every other as PyTorch's does.
TEST_P(Resumed, EveryLayoutContinues) {
  std::vector<Place> places{{comm::single_mesh(), 0, 1, "a single rank"}};
  each_layout(Fixture(GetParam()).config().model, {1, 3},
              [&](const comm::Mesh& mesh, int zero, const std::string& on) {
                places.push_back({mesh, zero, job().size(), on});
              });
  const auto fixture = [&](const Place& at) {
    return Fixture(GetParam(), overrides(at.mesh.layout, at.zero, {"optimizer.ema=0.5"}), at.ranks);
  };
  const comm::Mesh all = test::mesh_of({job().size(), 1});
  const checkpoint::CheckpointRanks ranks = checkpoint::checkpoint_ranks(all.world());
  const test::SharedFolder shared(all);
  const std::string& folder = shared.path();
  std::vector<std::string> paths;
  for (const Place& from : places) {
    const Fixture f = fixture(from);
    train::Engine engine(plan::make_step_plan(f.config(), from.mesh), 1);
    f.load_parameters(engine);
    const auto tokens = f.get<std::int64_t>("tokens");
    for (std::int64_t s = 1; s <= 10; ++s) step_on(engine, f, tokens, s);
    std::vector<checkpoint::Chunk> pieces;
    if (from.ranks > 1 || job().rank() == 0) pieces = train::checkpoint_chunks(engine);
    const checkpoint::CheckpointResult saved =
        checkpoint::write_checkpoint(folder + "/" + std::to_string(paths.size()),
                                     {.step = 10, .updates = engine.updates()}, pieces, 1, ranks);
    ASSERT_TRUE(saved.ok()) << from.name << ": " << saved.error;
    paths.push_back(saved.path);
  }
  for (const Place& to : places)
    for (std::size_t from = 0; from < paths.size(); ++from) {
      const Fixture f = fixture(to);
      train::Engine engine(plan::make_step_plan(f.config(), to.mesh), 1);
      train::restore(checkpoint::CheckpointReader(paths[from]), paths[from], engine, true);
      const auto tokens = f.get<std::int64_t>("tokens");
      const auto losses = f.get<double>("losses");
      for (std::int64_t s = 11; s <= 20; ++s) {
        const double expected = losses[static_cast<std::size_t>(s - 1)];
        EXPECT_NEAR(step_on(engine, f, tokens, s).loss, expected, 1e-5 * expected)
            << "from " << places[from].name << " to " << to.name << ", step " << s;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(All, Resumed,
                         testing::Values("optimizers/lamb_gpt2", "optimizers/adafactor_gpt2",
                                         "optimizers/muon_gpt2"),
                         [](const auto& info) {
                           return std::filesystem::path(info.param).filename().string();
                         });

INSTANTIATE_TEST_SUITE_P(All, Optimizers, testing::ValuesIn(test::names_in("optimizers")),
                         [](const auto& info) {
                           return std::filesystem::path(info.param).filename().string();
                         });

// Rules by their words, on models of every family.
config::Config config_of(const std::string& type, const std::string& model, int ranks,
                         const std::vector<std::string>& more) {
  std::vector<std::string> all{"optimizer.type=" + type, "train.seq_len=16"};
  all.insert(all.end(), more.begin(), more.end());
  const std::string data = model.find("encoder_decoder") != model.npos    ? "pairs"
                           : model.find("family: encoder,") != model.npos ? "mlm"
                                                                          : "tokens";
  config::Config c =
      config::parse_config("model: {d_model: 32, n_heads: 8, d_ff: 40, " + model +
                               "}\ndata: {train: {type: " + data + ", path: none.bin}}\n",
                           "test", all);
  config::resolve_for_ranks(c, ranks);
  return c;
}
const std::string kDecoder =
    "family: decoder, n_layers: 2, vocab_size: 97, position: rope, norm: rmsnorm, activation: "
    "swiglu, bias: false, tie_embeddings: false";
const std::vector<std::string> kTrained{
    kDecoder, "family: decoder, n_layers: 1, vocab_size: 97, dropout: 0.1",
    "family: encoder, n_layers: 1, vocab_size: 61, type_vocab_size: 2, head_transform: true, "
    "next_sentence: true",
    "family: encoder_decoder, n_layers: 1, vocab_size: 61, position: relative, norm: rmsnorm, "
    "bias: false"};

class Rules : public testing::TestWithParam<std::string> {};

// In float64; with ZeRO as without, bit for bit, and resumed.
TEST_P(Rules, EveryLayoutEqualsASingleRank) {
  for (const comm::Layout& layout : test::layouts())
    for (const std::string& model : kTrained) {
      if (job().size() > 2 && model != kTrained[0] && model != kTrained[2]) continue;
      const config::Config c = config_of(
          GetParam(), model, job().size(),
          overrides(layout, 1,
                    {"train.global_batch_size=" + std::to_string(layout.size(comm::kData))}));
      for (const verify::Finding& f :
           verify::verify_layout(verify::shrink(c), test::mesh_of(layout), device::Device::cpu(1)))
        EXPECT_TRUE(f.ok()) << where(layout, 1) << ", " << model << ": " << f.check << " "
                            << f.worst << " " << f.error;
    }
}

const test::FillBatch kTokens = [](std::int64_t first, std::int64_t count, const BatchFields& f) {
  const auto width = static_cast<std::int64_t>(f.at(Field::ids).size()) / count;
  for (std::int64_t i = 0; i < count * width; ++i)
    for (const Field field : {Field::ids, Field::labels})
      f.at(field)[static_cast<std::size_t>(i)] =
          static_cast<std::int32_t>((first * width + i) * 7 % 97);
};

TEST_P(Rules, HalvesTrainOnEveryLayout) {
  for (const std::string precision : {"bf16", "fp16"})
    for (const comm::Layout& layout : test::layouts()) {
      std::vector<double> losses[3];
      for (int run = 0; run < 3; ++run) {  // alone, then ZeRO 0 and 3
        const config::Config c = config_of(
            GetParam(), kDecoder, run == 0 ? 1 : job().size(),
            overrides(
                run == 0 ? comm::Layout{} : layout, run == 2 ? 3 : 0,
                {"precision=" + precision, "train.global_batch_size=8", "optimizer.ema=0.5"}));
        train::Engine e(
            plan::make_step_plan(c, run == 0 ? comm::single_mesh() : test::mesh_of(layout)), 1);
        EXPECT_EQ(e.arena_high_water(), e.plan().memory.total());
        e.initialize_parameters();
        for (int step = 1; step <= 5; ++step)
          losses[run].push_back(test::train_step(e, step, 5e-3, kTokens).loss);
        e.swap_average();
        losses[run].push_back(test::evaluate(e, 8, kTokens).mean());
      }
      EXPECT_LT(losses[0][4], losses[0][0]) << "it learns nothing";
      EXPECT_NE(losses[0][4], losses[0][5]);
      EXPECT_EQ(losses[1], losses[2]) << precision << ": ZeRO on " << where(layout, 3);
      for (std::size_t i = 0; i < losses[0].size(); ++i)
        EXPECT_NEAR(losses[1][i], losses[0][i], 0.005 * losses[0][i])
            << precision << " on " << where(layout, 0);
    }
}

TEST_P(Rules, AStepThatIsNotFiniteChangesNothing) {
  for (const comm::Layout& layout : test::layouts())
    for (const int zero : {0, 1, 3}) {
      const config::Config c = config_of(
          GetParam(), kDecoder, job().size(),
          overrides(layout, zero,
                    {"precision=fp16", "train.global_batch_size=8", "optimizer.ema=0.5"}));
      train::Engine e(plan::make_step_plan(c, test::mesh_of(layout)), 1);
      e.initialize_parameters();
      ASSERT_TRUE(test::train_step(e, 1, 1e-2, kTokens).applied);
      const optim::ShardLayout& shards = e.optimizer().shards();
      const auto contents = [&] {
        std::vector<float> all;
        for (const auto& [at, n] : {std::pair{e.flat().state, shards.state_elements},
                                    std::pair{e.flat().master, shards.elements},
                                    std::pair{e.flat().average, shards.elements}})
          all.insert(all.end(), static_cast<const float*>(at), static_cast<const float*>(at) + n);
        return all;
      };
      const std::vector<float> before = contents();
      e.loss_scale().value = 0x1p120;
      EXPECT_FALSE(test::train_step(e, 2, 1e-2, kTokens).applied);
      EXPECT_EQ(contents(), before) << where(layout, zero);
      e.loss_scale().value = 1024;
      EXPECT_TRUE(test::train_step(e, 3, 1e-2, kTokens).applied);
      EXPECT_NE(contents(), before);
    }
}

INSTANTIATE_TEST_SUITE_P(All, Rules, testing::Values("sgd", "lamb", "adafactor", "muon"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tfm
