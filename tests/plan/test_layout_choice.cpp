// What a search decides, as settings of a configuration.
#include <gtest/gtest.h>

#include "plan/layout_choice.h"

namespace tfm {
namespace {

config::Config read_config(const std::vector<std::string>& overrides = {}) {
  return config::parse_config(
      "model: {family: encoder_decoder, vocab_size: 100, d_model: 64, n_layers: 4, n_heads: 4}\n"
      "train: {global_batch_tokens: 4096}\n"
      "data: {train: {type: pairs, source: a.txt, target: b.txt}}\n",
      "test", overrides);
}

// Every key that a choice has is among the changes, and these say the same.
TEST(LayoutChoice, ChangesAreItsSettings) {
  const config::Config read =
      read_config({"parallel.pipeline=2", "parallel.layers_per_stage=[3, 5]"});
  const std::vector<std::string> overrides{"parallel.data=2",
                                           "parallel.layers_per_stage=auto",
                                           "parallel.context=4",
                                           "parallel.context_exchange=ring",
                                           "parallel.pipeline=8",
                                           "parallel.tensor=2",
                                           "parallel.sequence=false",
                                           "parallel.schedule=interleaved",
                                           "parallel.virtual_stages=3",
                                           "parallel.zero=3",
                                           "recompute=full",
                                           "recompute_layers=2",
                                           "train.micro_batch_tokens=512"};
  const config::Config chosen = config::with_overrides(read, overrides, "test");
  const plan::LayoutChoice choice = plan::LayoutChoice::of(chosen);
  config::Config applied = read;
  choice.apply(applied);
  EXPECT_EQ(applied, chosen);
  EXPECT_EQ(plan::LayoutChoice::of(applied), choice);
  std::vector<std::string> changes;
  for (const config::Change& c : plan::changes_of(read, choice))
    changes.push_back(c.key + "=" + c.now);
  EXPECT_EQ(changes, overrides);
  EXPECT_TRUE(plan::changes_of(read, plan::LayoutChoice::of(read)).empty());
}

TEST(LayoutChoice, StartsAtTheDefaultsOfTheConfiguration) {
  const plan::LayoutChoice read = plan::LayoutChoice::of(config::Config{});
  plan::LayoutChoice none;
  none.recompute = config::Config{}.recompute;
  EXPECT_EQ(none, read);
  EXPECT_FALSE(none.counts_tokens());
  EXPECT_EQ((plan::LayoutChoice{.micro_batch_tokens = 8}).micro_batch(), 8);
  EXPECT_TRUE((plan::LayoutChoice{.micro_batch_tokens = 8}).counts_tokens());
  const plan::LayoutChoice both{.micro_batch_size = 2, .micro_batch_tokens = 8};
  EXPECT_EQ(both.micro_batch(), 2);
  EXPECT_FALSE(both.counts_tokens());
}

}  // namespace
}  // namespace tfm
