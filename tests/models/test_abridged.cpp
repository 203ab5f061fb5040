// A short model has each layer of a long one between equal neighbours.
#include <gtest/gtest.h>

#include "models/abridged.h"

namespace tfm {
namespace {

config::Config decoder(int layers, const std::string& more = "") {
  return config::parse_config(
      "model: {family: decoder, vocab_size: 100, d_model: 64, n_heads: 8, "
      "d_ff: 128, position: rope, n_layers: " +
          std::to_string(layers) + more + "}\ndata: {train: {type: tokens, path: none.bin}}\n",
      "test", {"train.seq_len=16"});
}
const std::string kPattern =
    ", layers: [l, l, l, l, l, g], layer_kinds: {l: {}, g: {d_ff: 512, rope: {theta: 5}}}";

TEST(Abridged, HasThreeLayersOfEqualOnes) {
  const models::Abridged a = models::abridged(decoder(80).model);
  EXPECT_EQ(a.model.n_layers, 3);
  EXPECT_EQ(a.like.front(), 0U);
  EXPECT_EQ(a.like.back(), 2U);
  for (std::size_t l = 1; l + 1 < a.like.size(); ++l) EXPECT_EQ(a.like[l], 1U);
}

TEST(Abridged, KeepsEveryNeighbourhood) {
  for (const int layers : {1, 2, 3, 6, 7, 13, 60, 61}) {
    const config::ModelConfig whole = decoder(layers, layers < 6 ? "" : kPattern).model;
    const models::Abridged a = models::abridged(whole);
    const auto all = whole.stacks()[0], few = a.model.stacks()[0];
    ASSERT_EQ(a.like.size(), all.size());
    EXPECT_LE(few.size(), 9U);
    const auto at = [](const auto& stack, std::size_t i) {
      return i < stack.size() ? std::optional(stack[i]) : std::nullopt;
    };
    for (std::size_t l = 0; l < all.size(); ++l)
      for (const std::size_t beside : {l - 1, l, l + 1})
        EXPECT_EQ(at(all, beside), at(few, a.like[l] + beside - l)) << layers << " " << l;
  }
}

TEST(Abridged, FlopsAreThoseOfTheWholeModel) {
  const auto flops = models::layer_flops(decoder(12, kPattern));
  ASSERT_EQ(flops.size(), 12U);
  EXPECT_EQ(flops[0], flops[9]);
  EXPECT_EQ(flops[5] - flops[0], 2. * 16 * 2 * 64 * (512 - 128));
  EXPECT_GT(flops[11] - flops[5], 2. * 16 * 64 * 100 - 1);
}

TEST(Abridged, ScoresOfAWindowAreThoseThatItLeaves) {
  const auto flops = models::layer_flops(
      decoder(3, ", layers: [w, g, g], layer_kinds: {w: {attention: {window: 3}}, g: {}}"));
  const double of_pair = 4 * 64, seen = 16 * 3 - 3 - 16 * 0.5;  // a query's own key counts by half
  EXPECT_EQ(flops[1] - flops[0], of_pair * (16 * 16 - 2 * seen));
}

}  // namespace
}  // namespace tfm
