// Ranks that share out sequences compute what a single rank does: every family, position encoding
// and mask, with tensor and data parallelism, a pipeline, ZeRO, replicas and recomputation; their
// checkpoints continue on any layout. Keys and values are gathered, or passed round.
#include "turns.h"
#include "verify/layout.h"

namespace tfm {
namespace {

using test::config_of, test::expect_near, test::job, test::trained, test::trained_alone;

const std::vector<test::ModelCase> kContexts{
    {"family: decoder, n_layers: 2, n_kv_heads: 4, position: rope, norm: rmsnorm, activation: "
     "swiglu, bias: false, qk_norm: true",
     "type: tokens"},
    {"family: decoder, n_layers: 2, position: learned, dropout: 0.2, attention: {window: 2, "
     "strided: {step: 3}}",
     "type: tokens, documents: separate"},
    {"family: decoder, n_layers: 2, position: alibi, dropout: 0.1, attention: {prefix: true}",
     "type: prefix_lm"},
    {"family: encoder, n_layers: 2, norm_position: post, type_vocab_size: 2, head_transform: true, "
     "head_bias: true, next_sentence: true, dropout: 0.1, attention: {window: 6, "
     "global_tokens: 2}",
     "type: mlm, next_sentence: true"},
    {"family: encoder_decoder, n_layers: 2, tie_embeddings: all, dropout: 0.1", "type: pairs"},
    {"family: encoder_decoder, n_layers: 2, position: relative, norm: rmsnorm, bias: false, "
     "tie_embeddings: inputs, attention: {window: 5}, dropout: {attention: 0.2, residual: 0.2, "
     "output: 0.2}",
     "type: pairs"},
    {"family: decoder, n_layers: 2, n_kv_heads: 4, position: rope, norm: rmsnorm, norm_position: "
     "inner, qk_norm: whole",
     "type: tokens"},
    {"family: decoder, n_layers: 2, n_kv_heads: 4, position: rope, norm: rmsnorm, norm_position: "
     "both, norm_plus_one: true, softcap: 0.5, attention: {softcap: 0.5, query_scalar: 3, sinks: "
     "true}, rope: {fraction: 0.5, scaling: {type: longrope, original_max_seq_len: 4}}, longrope: "
     "{short_factor: [1, 1], long_factor: [1, 2]}, layers: [a, b], layer_kinds: {a: {attention: "
     "{window: 5}}, b: {attention: {blocks: {size: 2, random: 1}}}}, dropout: 0.1",
     "type: tokens, documents: separate"},
    {"family: encoder_decoder, n_layers: 2, position: relative, softcap: 0.5, attention: {softcap: "
     "0.5, sinks: true}",
     "type: pairs"},
    {"family: decoder, n_layers: 2, d_head: 6, position: rope, dropout: 0.1, attention: {type: "
     "latent, q_rank: 8, kv_rank: 12, value_size: 5}",
     "type: tokens, documents: separate"},
    {"family: decoder, n_layers: 2, d_head: 4, position: none, norm: rmsnorm, dropout: {residual: "
     "0.1}, attention: {type: gated_delta, value_size: 6}",
     "type: tokens, documents: separate"},
    {"family: decoder, n_layers: 2, d_head: 4, position: none, dropout: {residual: 0.1}, "
     "attention: "
     "{type: mamba2, key_heads: 8, value_size: 6}",
     "type: tokens, documents: separate"},
    {"family: encoder, n_layers: 2, d_head: 4, position: learned, attention: {type: linear}",
     "type: mlm, documents: separate"},
    {"family: decoder, n_layers: 3, position: rope, dropout: 0.1, layers: [a, b, c], layer_kinds: "
     "{a: {}, b: {n_kv_heads: 4, d_ff: 64, rope: {theta: 100}, attention: {window: 5}}, c: "
     "{position: alibi, qk_norm: true, attention: {window: 2}}}",
     "type: tokens, documents: separate"},
};

// On eight ranks a few that share out something else, too.
std::vector<comm::Layout> context_layouts() {
  std::vector<comm::Layout> all;
  for (const comm::Layout& l : test::layouts())
    for (const int stages : {1, 2})
      for (const int context : {2, 4}) {
        const int data = l.size(comm::kData), tensor = l.size(nn::kModelAxes);
        if (data % (stages * context) != 0 ||
            (job().size() > 4 && (context > 2 || tensor * stages == 1 || tensor > 2)))
          continue;
        all.push_back(comm::Layout({.data = data / (stages * context),
                                    .tensor = tensor,
                                    .pipeline = stages,
                                    .context = context}));
      }
  return all;
}

class Contexts : public testing::TestWithParam<std::tuple<std::size_t, std::string>> {
 protected:
  static std::size_t number() { return std::get<0>(GetParam()); }
  static const test::ModelCase& model() { return kContexts[number()]; }
  static std::string exchange() { return "parallel.context_exchange=" + std::get<1>(GetParam()); }
};

TEST_P(Contexts, EqualASingleRankInFloat64) {
  const auto all = context_layouts();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t turn = number() + i;  // other options on each
    const int data = all[i].size(comm::kData);
    const std::size_t zero = turn % (all[i].size(nn::kStageAxes) > 1 ? 3 : 4);
    const config::Config c = config_of(
        model(), all[i],
        {exchange(), "parallel.zero=" + std::to_string(zero),
         std::string("parallel.sequence=") + (turn % 2 ? "true" : "false"),
         "parallel.replicas=" + std::to_string(zero > 0 && data % 2 == 0 ? 2 : 1),
         "loss.label_smoothing=0.1", "train.global_batch_size=" + std::to_string(4 * data),
         "train.micro_batch_size=2", "recompute=selective"});
    const comm::Mesh& mesh = test::mesh_of(config::layout_of(c));
    for (const verify::Finding& f : verify::verify_layout(c, mesh, device::Device::cpu(1)))
      EXPECT_TRUE(f.ok()) << all[i].str() << ": " << f.check << " " << f.worst << " " << f.error;
  }
}

TEST_P(Contexts, TrainAlikeOnEveryLayout) {
  const std::int64_t steps = job().size() > 2 ? 8 : 20;
  const auto on = [&](const comm::Layout& l, const std::string& more) {
    return config_of(model(), l,
                     {exchange(), "train.global_batch_size=8", "train.micro_batch_size=2",
                      "optimizer.ema=0.5", more, "parallel.replicas=1"});
  };
  const std::vector<comm::Layout> all = context_layouts();
  if (all.empty()) return;
  const auto expected = trained_alone(on({}, "recompute=none"), steps);
  for (const comm::Layout& l : all) {
    const comm::Mesh& mesh = test::mesh_of(l);
    const auto once = trained(on(l, "recompute=full"), mesh, steps);
    expect_near(once, expected, 1e-6, l.str());
    EXPECT_EQ(trained(on(l, "parallel.zero=1"), mesh, steps), once) << l.str() << ", ZeRO 1, twice";
    expect_near(trained(on(l, "parallel.zero=2"), mesh, steps), once, 1e-6, l.str() + ", ZeRO 2");
  }
}

TEST_P(Contexts, HalvesFollowASingleRank) {
  if (job().size() != 2) GTEST_SKIP() << "on two ranks";
  for (const std::string precision : {"bf16", "fp16"}) {
    const auto on = [&](const comm::Layout& l) {
      return config_of(model(), l,
                       {exchange(), "train.global_batch_size=8", "train.micro_batch_size=2",
                        "precision=" + precision});
    };
    const auto expected = trained_alone(on({}), 5);
    for (const comm::Layout& l : context_layouts())
      expect_near(trained(on(l), test::mesh_of(l), 5), expected, 0.02, precision + " " + l.str());
  }
}

// A run that changes its layout at each of its checkpoints.
TEST_P(Contexts, CheckpointsContinueOnEveryLayout) {
  const auto on = [&](const comm::Layout& l) {
    return config_of(model(), l,
                     {exchange(), "train.global_batch_size=8", "train.micro_batch_size=1",
                      "optimizer.ema=0.5", "parallel.zero=" + std::to_string(number() % 3),
                      "optimizer.type=" + std::string(number() % 2 ? "adafactor" : "lamb")});
  };
  std::vector<comm::Layout> turns = context_layouts();
  if (turns.empty()) return;
  const std::vector<comm::Layout> others = test::layouts();
  turns.insert(turns.end(), {others[others.size() / 2], turns.front(), others.back()});
  const auto expected = trained_alone(on({}), std::ssize(turns));
  std::vector<config::Config> configs;
  for (const comm::Layout& l : turns) configs.push_back(on(l));
  test::expect_continued(configs, expected);
}

INSTANTIATE_TEST_SUITE_P(All, Contexts,
                         testing::Combine(testing::Range<std::size_t>(0, kContexts.size()),
                                          testing::Values("gather", "ring")));

}  // namespace
}  // namespace tfm
