// Kinds of layers: how they are read, what they inherit, what is refused.
#include <gtest/gtest.h>

#include "config/config.h"

namespace tfm::config {
namespace {

Config parsed(const std::string& model, const std::vector<std::string>& overrides = {}) {
  return parse_config("model: {vocab_size: 40, d_model: 64, n_heads: 8, " + model +
                          "}\ndata: {train: {type: tokens, path: none.bin}}\n",
                      "test.yaml", overrides);
}

std::string problem(const std::string& model) {
  try {
    parsed(model);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::usage);
    return e.what();
  }
  return "";
}

const std::string kMixed =
    "family: decoder, n_layers: 5, d_ff: 96, layers: [local, local, global], layer_kinds: {local: "
    "{n_heads: 4, position: rope, rope: {theta: 100}, dropout: 0.5}, global: {n_kv_heads: 2, "
    "activation: swiglu}}";

TEST(LayerKinds, AreRepeatedUntilTheStackIsFull) {
  const auto stacks = parsed(kMixed).model.stacks();
  ASSERT_EQ(stacks.size(), 1U);
  ASSERT_EQ(stacks[0].size(), 5U);
  for (const std::size_t l : {0, 1, 3, 4}) {
    EXPECT_EQ(stacks[0][l].n_heads, 4);
    EXPECT_EQ(stacks[0][l].n_kv_heads, 4);  // derived from the kind's heads
    EXPECT_EQ(stacks[0][l].d_head, 16);
    EXPECT_EQ(stacks[0][l].rope.theta, 100);
    EXPECT_EQ(stacks[0][l].dropout.attention, 0.5);
    EXPECT_EQ(stacks[0][l].dropout.embedding, 0);
    EXPECT_EQ(stacks[0][l].d_ff, 96);
  }
  EXPECT_EQ(stacks[0][2].n_heads, 8);
  EXPECT_EQ(stacks[0][2].n_kv_heads, 2);
  EXPECT_EQ(stacks[0][2].activation, Activation::swiglu);
}

TEST(LayerKinds, AreDumpedAndReadBack) {
  const Config c = parsed(kMixed);
  const Config again = parse_config(dump_config(c), "dump.yaml", {});
  EXPECT_EQ(c, again);
  EXPECT_EQ(again.model.stacks(), c.model.stacks());
}

TEST(LayerKinds, FollowTheModelInAllElse) {
  const Config c = parsed(kMixed);
  const Config wider = with_overrides(c, {"model.d_ff=128", "model.rope.theta=7"}, "test.yaml");
  EXPECT_EQ(wider.model.stacks()[0][0].d_ff, 128);
  EXPECT_EQ(wider.model.stacks()[0][0].rope.theta, 100);
  EXPECT_EQ(wider.model.stacks()[0][2].rope.theta, 7);
  const Config other = with_overrides(c, {"model.layer_kinds.local.d_ff=32"}, "test.yaml");
  EXPECT_EQ(other.model.stacks()[0][0].d_ff, 32);
  EXPECT_EQ(other.model.stacks()[0][2].d_ff, 96);
  EXPECT_EQ(other.model.stacks()[0][0].n_heads, 4);
}

TEST(LayerKinds, KeepOneOfEachWhereAStackIsShortened) {
  Config c = parsed(kMixed);
  c.model.shorten(1);
  EXPECT_EQ(c.model.n_layers, 2);
  EXPECT_EQ(c.model.layers, (std::vector<std::string>{"local", "global"}));
}

TEST(LayerKinds, OfTheModelDropAndShorten) {
  EXPECT_FALSE(parsed("family: decoder, n_layers: 2, dropout: 0").model.drops());
  EXPECT_TRUE(parsed("family: decoder, n_layers: 2, dropout: {ffn: 0.1}").model.drops());
  EXPECT_TRUE(parsed(kMixed).model.drops()) << "of one kind alone";
  EXPECT_TRUE(
      parsed("family: decoder, n_layers: 2, experts: {count: 4, jitter: 0.1}").model.drops());
  EXPECT_FALSE(
      parsed("family: decoder, n_layers: 2, experts: {count: 4, jitter: 0}").model.drops());
  ModelConfig m = parsed(kMixed).model;  // local, local, global, local, local
  const auto shortened = [](ModelConfig of, std::int64_t least) {
    of.shorten(least);
    std::vector<std::int64_t> heads;
    const auto stacks = of.stacks();
    for (const LayerConfig& l : stacks[0]) heads.push_back(l.n_heads);
    return heads;
  };
  using Heads = std::vector<std::int64_t>;
  EXPECT_EQ(shortened(m, 1), (Heads{4, 8}));
  EXPECT_EQ(shortened(m, 3), (Heads{4, 4, 8})) << "in the stack's order";
  EXPECT_EQ(shortened(m, 4), (Heads{4, 4, 8, 4}));
  EXPECT_EQ(shortened(m, 9), (Heads{4, 4, 8, 4, 4}));
  EXPECT_FALSE(m.uniform());
  EXPECT_TRUE(parsed("family: decoder, n_layers: 2").model.uniform());
  // Experts in every other layer, two of four.
  ModelConfig sparse = parsed("family: decoder, n_layers: 4, experts: {count: 4, every: 2}").model;
  EXPECT_EQ(sparse.layers_with_experts(), 2);
  const auto before = sparse.stacks()[0];
  sparse.keep_layers(0, {1, 2, 3});
  EXPECT_EQ(sparse.layers_with_experts(), 2);
  EXPECT_EQ(sparse.stacks()[0], (std::vector<LayerConfig>{before[1], before[2], before[3]}));
}

TEST(LayerKinds, ThatAreWrongAreRefused) {
  const std::string base = "family: decoder, n_layers: 4, ";
  const std::vector<std::pair<std::string, std::string>> cases{
      {"layers: [a]", "'a' is not a kind of layer"},
      {"layers: [locl], layer_kinds: {local: {}}", "did you mean 'local'?"},
      {"layer_kinds: {a: {}}", "no layer is of the kind 'a'"},
      {"layers: [a, a, a, a, a], layer_kinds: {a: {}}", "names 5 layers, but the stack has 4"},
      {"layers: [a], layer_kinds: {a: {vocab_size: 3}}", "unknown key 'vocab_size' in"},
      {"layers: [a], layer_kinds: {a: {intermediate_size: 3}}", "did you mean 'd_ff'?"},
      {"layers: [a], layer_kinds: {a: {n_heads: 7}}", "is not divisible by n_heads 7"},
      {"layers: [a], layer_kinds: {a: {n_kv_heads: 3}}", "legal values of n_kv_heads"},
      {"layers: [a], layer_kinds: {a: {position: learned}}, position: rope", "added to the embed"},
      {"layers: [a], layer_kinds: {a: {rope: {theta: -1}}}", "expected a number > 0"},
      {"layers: [a], layer_kinds: {a: 3}", "expected keys of 'model', or {}"},
      {"layers: a, layer_kinds: {a: {}}", "expected a list of names"},
      {"layers: [a], layer_kinds: {a: {dropout: {embedding: 0.1}}}", "unknown key 'embedding'"},
      {"encoder_layers: [a], layer_kinds: {a: {}}", "only with family encoder_decoder"},
      {"position: relative, layers: [a, b], layer_kinds: {a: {}, b: {n_heads: 4}}",
       "share one table"}};
  for (const auto& [model, expected] : cases)
    EXPECT_NE(problem(base + model).find(expected), std::string::npos) << model << "\n"
                                                                       << problem(base + model);
}

TEST(LayerKinds, AreSharedOutLikeTheModel) {
  Config c = parsed(kMixed, {"parallel.tensor=4"});
  try {
    resolve_for_ranks(c, 4);
    FAIL() << "2 key/value heads on 4 ranks";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("global.n_kv_heads 2 is not divisible"), std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace tfm::config
