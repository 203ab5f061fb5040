// A pipeline of stages computes what a single rank does: every family, tied and shared parameters,
// with tensor and data parallelism, ZeRO and recomputation; its checkpoints continue on any layout.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "checkpoint/checkpoint.h"
#include "comm/consensus.h"
#include "job.h"
#include "support/batch.h"
#include "train/engine_state.h"
#include "train/verify.h"

namespace tfm {
namespace {

namespace fs = std::filesystem;
using test::job;

struct Case {
  std::string model, data;
  int blocks = 4;
};
const std::vector<Case> kCases{
    {"family: decoder, n_layers: 9, dropout: 0.2", "type: tokens", 9},
    {"family: decoder, n_layers: 4, n_kv_heads: 4, position: rope, norm: rmsnorm, activation: "
     "swiglu, bias: false, tie_embeddings: false",
     "type: tokens, documents: separate"},
    {"family: encoder, n_layers: 4, norm_position: post, type_vocab_size: 2, head_transform: true, "
     "head_bias: true, next_sentence: true, dropout: 0.1",
     "type: mlm, next_sentence: true"},
    {"family: encoder_decoder, n_layers: 2, tie_embeddings: all, dropout: 0.1", "type: pairs"},
    {"family: encoder_decoder, n_encoder_layers: 1, n_decoder_layers: 4, position: relative, norm: "
     "rmsnorm, bias: false, tie_embeddings: inputs",
     "type: pairs", 5},
};

struct Pipeline {
  comm::Layout layout;
  int stages_of_rank = 1;
  std::string str() const {
    return layout.str() + ", " + std::to_string(stages_of_rank) + " stages on each rank";
  }
};

// Those of at most four ranks in a row.
std::vector<Pipeline> pipelines(const Case& c) {
  std::vector<Pipeline> all;
  for (const comm::Layout& l : test::layouts())
    for (const int ranks : {2, 4})
      for (const int of_rank : {1, 2})
        if (l.size(comm::kData) % ranks == 0 && ranks * of_rank <= c.blocks)
          all.push_back({comm::Layout({.data = l.size(comm::kData) / ranks,
                                       .tensor = l.size(nn::kModelAxes),
                                       .pipeline = ranks}),
                         of_rank});
  return all;
}

config::Config config_of(const Case& c, const Pipeline& pipeline,
                         std::vector<std::string> overrides) {
  const comm::Layout& layout = pipeline.layout;
  if (pipeline.stages_of_rank > 1)
    overrides.insert(overrides.end(),
                     {"parallel.schedule=interleaved",
                      "parallel.virtual_stages=" + std::to_string(pipeline.stages_of_rank)});
  overrides.insert(overrides.end(),
                   {"parallel.tensor=" + std::to_string(layout.size(nn::kModelAxes)),
                    "parallel.pipeline=" + std::to_string(layout.size(nn::kStageAxes)),
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

const test::FillBatch kFill = [](std::int64_t first, std::int64_t count,
                                 const BatchFields& fields) {
  for (const auto& [field, values] : fields) {
    const FieldKind kind = info_of(field).kind;
    const std::size_t width = values.size() / static_cast<std::size_t>(count);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t at = static_cast<std::size_t>(first) * width + i;
      values[i] = kind == FieldKind::mask ? (at % 16 == 15 ? -1 : 0)
                  : kind == FieldKind::answer || kind == FieldKind::type
                      ? static_cast<std::int32_t>(at % 2)
                      : static_cast<std::int32_t>(at * 7 % 40);
    }
  }
};

// Losses of training, that of an evaluation, and the last gradient's norm.
std::vector<double> trained(const config::Config& c, const comm::Mesh& mesh, std::int64_t steps) {
  train::Engine e(plan::make_step_plan(c, mesh), 1);
  EXPECT_EQ(e.arena_high_water(), e.plan().memory.total());
  e.initialize_parameters();
  std::vector<double> all;
  train::StepResult r;
  for (std::int64_t s = 1; s <= steps; ++s) {
    r = test::train_step(e, s, 1e-3, kFill);
    all.push_back(r.loss);
  }
  all.insert(all.end(), {test::evaluate(e, e.plan().shapes[0].batch, kFill).mean(), r.grad_norm});
  return all;
}

void expect_near(const std::vector<double>& a, const std::vector<double>& b, double relative,
                 const std::string& where) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)  // a norm is of sums that cancel
    EXPECT_NEAR(a[i], b[i], (i + 1 < a.size() ? 1 : 10) * relative * std::abs(b[i]))
        << where << ", number " << i;
}

class Pipelines : public testing::TestWithParam<std::size_t> {};

TEST_P(Pipelines, EqualASingleRankInFloat64) {
  const auto all = pipelines(kCases[GetParam()]);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const comm::Layout& layout = all[i].layout;
    const std::size_t turn = GetParam() + i;  // other options on each
    const config::Config c =
        config_of(kCases[GetParam()], all[i],
                  {"parallel.zero=" + std::to_string(turn % 3),
                   std::string("parallel.sequence=") + (turn % 2 ? "true" : "false"),
                   "loss.label_smoothing=0.1",
                   "train.global_batch_size=" + std::to_string(4 * layout.size(comm::kData)),
                   "train.micro_batch_size=1", "recompute=selective"});
    const comm::Mesh mesh = comm::make_mesh(job(), layout);
    for (const train::Finding& f : train::verify_layout(c, mesh, device::Device::cpu(1)))
      EXPECT_TRUE(f.ok()) << all[i].str() << ": " << f.check << " " << f.worst << " " << f.error;
  }
}

TEST_P(Pipelines, TwentyStepsOnEveryLayout) {
  const Case& model = kCases[GetParam()];
  const auto on = [&](const Pipeline& p, const std::string& more) {
    return config_of(model, p,
                     {"train.global_batch_size=8", "train.micro_batch_size=1", "optimizer.ema=0.5",
                      more, "parallel.replicas=1"});
  };
  const comm::Mesh alone = comm::single_mesh();
  const auto expected = trained(on({}, "recompute=none"), alone, 20);
  for (const Pipeline& p : pipelines(model)) {
    const comm::Mesh mesh = comm::make_mesh(job(), p.layout);
    const auto once = trained(on(p, "recompute=full"), mesh, 20);
    expect_near(once, expected, 1e-6, p.str());
    EXPECT_EQ(trained(on(p, "recompute=none"), mesh, 20), once) << p.str() << ", twice";
    EXPECT_EQ(trained(on(p, "parallel.zero=1"), mesh, 20), once) << p.str() << ", ZeRO 1";
    expect_near(trained(on(p, "parallel.zero=2"), mesh, 20), once, 1e-6, p.str() + ", ZeRO 2");
  }
}

TEST_P(Pipelines, HalvesFollowASingleRank) {
  if (job().size() > 2) GTEST_SKIP() << "on few ranks";
  for (const std::string precision : {"bf16", "fp16"}) {
    const auto on = [&](const Pipeline& p) {
      return config_of(
          kCases[GetParam()], p,
          {"train.global_batch_size=8", "train.micro_batch_size=1", "precision=" + precision});
    };
    const auto expected = trained(on({}), comm::single_mesh(), 5);
    for (const Pipeline& p : pipelines(kCases[GetParam()]))
      expect_near(trained(on(p), comm::make_mesh(job(), p.layout), 5), expected, 0.02,
                  precision + " " + p.str());
  }
}

std::string path_on_all_ranks(const comm::Mesh& mesh) {
  return comm::broadcast_string(
      mesh.world(),
      (fs::temp_directory_path() / ("tfm-pipeline-" + std::to_string(getpid()))).string());
}

// A run that changes its layout at each of its checkpoints.
TEST_P(Pipelines, CheckpointsContinueOnEveryLayout) {
  const Case& model = kCases[GetParam()];
  const auto on = [&](const Pipeline& p) {
    return config_of(model, p,
                     {"train.global_batch_size=8", "train.micro_batch_size=1", "optimizer.ema=0.5",
                      "optimizer.type=" + std::string(GetParam() % 2 ? "adafactor" : "lamb")});
  };
  std::vector<Pipeline> turns = pipelines(model);
  if (turns.empty()) return;
  const std::vector<comm::Layout> others = test::layouts();
  turns.insert(turns.end(), {{others[others.size() / 2]}, turns.front(), {others.back()}});
  const auto expected =
      trained(on({}), comm::single_mesh(), static_cast<std::int64_t>(turns.size()));
  std::string written, dir;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const comm::Mesh mesh = comm::make_mesh(job(), turns[i].layout);
    if (i == 0) dir = path_on_all_ranks(mesh);
    train::Engine e(plan::make_step_plan(on(turns[i]), mesh), 1);
    if (i == 0)
      e.initialize_parameters();
    else
      train::restore(checkpoint::CheckpointReader(written), written, e, true);
    const auto step = static_cast<std::int64_t>(i) + 1;
    const train::StepResult r = test::train_step(e, step, 1e-3, kFill);
    EXPECT_NEAR(r.loss, expected[i], 1e-6 * expected[i]) << turns[i].str();
    const auto result = checkpoint::write_checkpoint(dir, {.step = step, .updates = e.updates()},
                                                     train::checkpoint_pieces(e), 0,
                                                     checkpoint::checkpoint_ranks(mesh.world()));
    ASSERT_TRUE(result.ok()) << result.error;
    written = result.path;
    mesh.world().barrier();
    if (i + 1 == turns.size() && mesh.rank() == 0) fs::remove_all(dir);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Pipelines, testing::Range<std::size_t>(0, kCases.size()));

}  // namespace
}  // namespace tfm
