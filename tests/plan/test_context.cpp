// Plans of ranks that share out sequences: what of their memory shrinks, and what they send.
#include <gtest/gtest.h>

#include "plan/traffic.h"

namespace tfm {
namespace {

plan::StepPlan plan_of_context(int context, const std::vector<std::string>& more = {}) {
  config::Config c = config::parse_config(
      "model: {family: decoder, vocab_size: 100, d_model: 64, n_layers: 8, n_heads: 4, n_kv_heads: "
      "2, position: rope}\n"
      "train: {seq_len: 1024, global_batch_size: 4, micro_batch_size: 2}\n"
      "data: {train: {type: tokens, path: none.bin}}\n",
      "test", {"parallel.context=" + std::to_string(context)});
  c = config::with_overrides(c, more, "test");
  config::resolve_for_ranks(c, context);
  return plan::make_step_plan(c, comm::Mesh(config::layout_of(c)));
}

// What lives for the length of a pass only, keys and values of all ranks among it, is a small part.
TEST(Context, SharesOutActivations) {
  const auto activations = [](int context) {
    return static_cast<double>(plan_of_context(context).largest().train_program.arena_bytes());
  };
  const double whole = activations(1);
  for (const int ranks : {2, 4, 8}) EXPECT_LT(activations(ranks), 1.15 * whole / ranks) << ranks;
}

// Three exchanges of a layer's keys and values in each micro-batch, and nothing else between them.
TEST(Context, SendsKeysAndValues) {
  for (const char* recompute : {"none", "full"}) {
    const plan::StepPlan p = plan_of_context(4, {std::string("recompute=") + recompute});
    const auto all = plan::textbook_traffic(p);
    const auto found = std::ranges::find(all, "context", &plan::TextbookTraffic::axes);
    ASSERT_NE(found, all.end());
    const double one = 3.0 / 4 * (2 * 1024) * (2 * 2 * 16) * 4;  // ring of 4, fp32
    EXPECT_EQ(found->textbook, 3 * one * 8 * 2);                 // layers, micro-batches
    if (p.config.recompute == config::Recompute::none) {
      EXPECT_EQ(found->sent, found->textbook);
      EXPECT_TRUE(found->differences.empty());
    } else {
      ASSERT_EQ(found->differences.size(), 1u);
      EXPECT_EQ(found->differences[0].bytes, one * 8 * 2);
      EXPECT_EQ(found->sent, found->textbook + one * 8 * 2);
    }
  }
}

}  // namespace
}  // namespace tfm
