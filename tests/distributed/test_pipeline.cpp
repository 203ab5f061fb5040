// A pipeline of stages computes what a single rank does: every family, tied and shared parameters,
// with tensor and data parallelism, ZeRO and recomputation; its checkpoints continue on any layout.
#include "turns.h"
#include "verify/layout.h"

namespace tfm {
namespace {

using test::expect_near, test::job, test::trained, test::trained_alone;

const std::vector<test::ModelCase> kPipelines{
    {"family: decoder, n_layers: 9, dropout: 0.2", "type: tokens", 9},
    {"family: decoder, n_layers: 4, n_kv_heads: 4, position: rope, norm: rmsnorm, activation: "
     "swiglu, bias: false, tie_embeddings: false",
     "type: tokens, documents: separate"},
    {"family: encoder, n_layers: 4, norm_position: post, type_vocab_size: 2, head_transform: true, "
     "head_bias: true, next_sentence: true, dropout: 0.1",
     "type: mlm, next_sentence: true"},
    {"family: encoder_decoder, n_layers: 2, tie_embeddings: all, dropout: 0.1", "type: pairs"},
    {"family: encoder_decoder, n_encoder_layers: 1, n_decoder_layers: 4, position: relative, norm: "
     "rmsnorm, bias: false, tie_embeddings: inputs, dropout: {residual: 0.1, output: 0.2}",
     "type: pairs", 5},
    {"family: decoder, n_layers: 7, position: rope, dropout: 0.1, layers: [a, b, a, c], "
     "layer_kinds: {a: {}, b: {n_kv_heads: 4, d_ff: 64, rope: {theta: 100}, activation: swiglu}, "
     "c: {position: none, norm: rmsnorm, bias: false, dropout: {ffn: 0.2}}}",
     "type: tokens", 7},
    {"family: decoder, n_layers: 4, position: rope, norm: rmsnorm, norm_position: both, "
     "norm_plus_one: true, bias: false, softcap: 0.5, attention: {softcap: 0.5}, dropout: 0.1",
     "type: tokens"},
    {"family: encoder_decoder, n_layers: 3, position: relative, encoder_layers: [wide, plain], "
     "decoder_layers: [plain, wide, other], layer_kinds: {plain: {}, wide: {d_ff: 64, activation: "
     "relu}, other: {position: none, n_kv_heads: 4, norm_position: post, attention: {window: 3}}}",
     "type: pairs", 6},
};

struct Pipeline {
  comm::Layout layout;
  int stages_of_rank = 1;
  std::string str() const {
    return layout.str() + ", " + std::to_string(stages_of_rank) + " stages on each rank";
  }
};

// Those of at most four ranks in a row.
std::vector<Pipeline> pipelines(const test::ModelCase& c) {
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

config::Config config_of(const test::ModelCase& c, const Pipeline& pipeline,
                         std::vector<std::string> overrides) {
  if (pipeline.stages_of_rank > 1)
    overrides.insert(overrides.end(),
                     {"parallel.schedule=interleaved",
                      "parallel.virtual_stages=" + std::to_string(pipeline.stages_of_rank)});
  return test::config_of(c, pipeline.layout, overrides);
}

class Pipelines : public testing::TestWithParam<std::size_t> {};

TEST_P(Pipelines, EqualASingleRankInFloat64) {
  const auto all = pipelines(kPipelines[GetParam()]);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const comm::Layout& layout = all[i].layout;
    const std::size_t turn = GetParam() + i;  // other options on each
    const config::Config c =
        config_of(kPipelines[GetParam()], all[i],
                  {"parallel.zero=" + std::to_string(turn % 4),
                   std::string("parallel.sequence=") + (turn % 2 ? "true" : "false"),
                   "loss.label_smoothing=0.1",
                   "train.global_batch_size=" + std::to_string(4 * layout.size(comm::kData)),
                   "train.micro_batch_size=1", "recompute=selective"});
    const comm::Mesh& mesh = test::mesh_of(layout);
    for (const verify::Finding& f : verify::verify_layout(c, mesh, device::Device::cpu(1)))
      EXPECT_TRUE(f.ok()) << all[i].str() << ": " << f.check << " " << f.worst << " " << f.error;
  }
}

// One stage, the first or the last one, has all blocks but one of each other stage.
TEST_P(Pipelines, OfLayersPerStageEqualASingleRank) {
  const test::ModelCase& model = kPipelines[GetParam()];
  const auto on = [&](const Pipeline& p, const std::string& layers_per_stage) {
    return config_of(model, p,
                     {"train.global_batch_size=8", "train.micro_batch_size=1",
                      "parallel.layers_per_stage=" + layers_per_stage});
  };
  const config::Config alone = on({}, "auto");
  const auto expected = trained_alone(alone, 3);
  const auto all = pipelines(model);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const int stages = all[i].layout.size(nn::kStageAxes) * all[i].stages_of_rank;
    std::string layers;
    for (int s = 0; s < stages; ++s) {
      const bool most = s == (i % 2 == 0 ? 0 : stages - 1);
      layers +=
          (s > 0 ? ", " : "") + std::to_string(most ? alone.model.total_layers() - stages + 1 : 1);
    }
    const config::Config c = on(all[i], "[" + layers + "]");
    expect_near(trained(c, test::mesh_of(all[i].layout), 3), expected, 1e-6,
                all[i].str() + ": " + layers);
  }
}

TEST_P(Pipelines, TrainAlikeOnEveryLayout) {
  const std::int64_t steps = job().size() > 2 ? 8 : 20;
  const test::ModelCase& model = kPipelines[GetParam()];
  const auto on = [&](const Pipeline& p, const std::string& more) {
    return config_of(model, p,
                     {"train.global_batch_size=8", "train.micro_batch_size=1", "optimizer.ema=0.5",
                      more, "parallel.replicas=1"});
  };
  const auto expected = trained_alone(on({}, "recompute=none"), steps);
  for (const Pipeline& p : pipelines(model)) {
    const comm::Mesh& mesh = test::mesh_of(p.layout);
    const auto once = trained(on(p, "recompute=full"), mesh, steps);
    expect_near(once, expected, 1e-6, p.str());
    EXPECT_EQ(trained(on(p, "recompute=none"), mesh, steps), once) << p.str() << ", twice";
    if (job().size() > 2 && p.layout.size(comm::kData) == 1) continue;  // ZeRO is as on two ranks
    EXPECT_EQ(trained(on(p, "parallel.zero=1"), mesh, steps), once) << p.str() << ", ZeRO 1";
    const auto summed = trained(on(p, "parallel.zero=2"), mesh, steps);
    expect_near(summed, once, 1e-6, p.str() + ", ZeRO 2");
    EXPECT_EQ(trained(on(p, "parallel.zero=3"), mesh, steps), summed) << p.str() << ", ZeRO 3";
  }
}

TEST_P(Pipelines, HalvesFollowASingleRank) {
  if (job().size() > 2) GTEST_SKIP() << "on few ranks";
  for (const std::string precision : {"bf16", "fp16"}) {
    const auto on = [&](const Pipeline& p) {
      return config_of(
          kPipelines[GetParam()], p,
          {"train.global_batch_size=8", "train.micro_batch_size=1", "precision=" + precision});
    };
    const auto expected = trained_alone(on({}), 5);
    for (const Pipeline& p : pipelines(kPipelines[GetParam()]))
      expect_near(trained(on(p), test::mesh_of(p.layout), 5), expected, 0.02,
                  precision + " " + p.str());
  }
}

// A run that changes its layout at each of its checkpoints.
TEST_P(Pipelines, CheckpointsContinueOnEveryLayout) {
  const test::ModelCase& model = kPipelines[GetParam()];
  const auto on = [&](const Pipeline& p, const std::string& zero) {
    return config_of(
        model, p,
        {"train.global_batch_size=8", "train.micro_batch_size=1", "optimizer.ema=0.5", zero,
         "optimizer.type=" + std::string(GetParam() % 2 ? "adafactor" : "lamb")});
  };
  std::vector<Pipeline> turns = pipelines(model);
  if (turns.empty()) return;
  const std::vector<comm::Layout> others = test::layouts();
  turns.insert(turns.end(), {{others[others.size() / 2]}, turns.front(), {others.back()}});
  const auto expected = trained_alone(on({}, "parallel.zero=0"), std::ssize(turns));
  std::vector<config::Config> configs;
  for (std::size_t i = 0; i < turns.size(); ++i)
    configs.push_back(on(turns[i], "parallel.zero=" + std::to_string((i + GetParam()) % 4)));
  test::expect_continued(configs, expected);
}

INSTANTIATE_TEST_SUITE_P(All, Pipelines, testing::Range<std::size_t>(0, kPipelines.size()));

}  // namespace
}  // namespace tfm
