// Plans of ranks that share out sequences: what of their memory shrinks, and what they send.
#include <gtest/gtest.h>

#include "plan/prediction.h"
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

const std::string kRing = "parallel.context_exchange=ring";

// What lives for the length of a pass only, keys and values of other ranks among it, is a small
// part.
TEST(Context, SharesOutActivations) {
  for (const std::string precision : {"fp32", "bf16"})
    for (const std::string exchange : {"gather", "ring"}) {
      const auto activations = [&](int context) {
        return static_cast<double>(
            plan_of_context(context, {"model.n_layers=12", "precision=" + precision,
                                      "parallel.context_exchange=" + exchange})
                .largest()
                .train_program.arena_bytes());
      };
      const double whole = activations(1);
      for (const int ranks : {2, 4, 8})
        EXPECT_LT(activations(ranks), 1.15 * whole / ranks)
            << precision << " " << exchange << " " << ranks;
    }
}

// Memory of a pass of attention: gathered keys and values are those of all ranks whatever their
// number; of a ring each rank has its own and two hops', which shrink as its own do.
TEST(Context, ARingHoldsTwoHops) {
  const auto workspace = [](int context, const std::vector<std::string>& more) {
    const plan::StepPlan p = plan_of_context(context, more);
    const graph::Program& program = p.largest().train_program;
    std::int64_t most = 0;
    for (const graph::Instruction& s : program.instructions())
      if (s.node >= 0 && s.workspace >= 0 &&
          program.recording().nodes()[static_cast<std::size_t>(s.node)].op->kind() == "attention")
        most = std::max(most, program.buffers()[static_cast<std::size_t>(s.workspace)].bytes);
    return most;
  };
  for (const int ranks : {2, 4, 8})
    EXPECT_EQ(ranks * workspace(ranks, {kRing}), 2 * workspace(2, {kRing}));
  EXPECT_GT(workspace(8, {}), 3 * workspace(8, {kRing}));
}

// On a device every hop but the one that brings sums of gradients home runs beside attention.
TEST(Context, HopsRunBesideAttention) {
  const plan::StepPlan p = plan_of_context(4, {kRing, "device=cuda", "precision=bf16"});
  const graph::Program& program = p.largest().train_program;
  int hops = 0, alone = 0;
  for (const graph::Exchange& x : program.exchanges()) {
    if (x.call.kind != comm::Collective::ring_shift) continue;
    ++hops;
    bool beside = false;
    for (int i = x.start + 1; i < x.wait; ++i) {
      const auto& s = program.instructions()[static_cast<std::size_t>(i)];
      beside |= s.beside && program.work(static_cast<std::size_t>(i)).attention_flops > 0;
    }
    alone += !beside;
  }
  EXPECT_EQ(hops, 8 * (3 + 5));  // layers; forward and backward
  EXPECT_EQ(alone, 8);
  double flops = 0;
  for (std::size_t i = 0; i < program.instructions().size(); ++i)
    flops += program.work(i).attention_flops;
  const plan::StepPlan gathers = plan_of_context(4, {"device=cuda", "precision=bf16"});
  double all = 0;
  for (std::size_t i = 0; i < gathers.largest().train_program.instructions().size(); ++i)
    all += gathers.largest().train_program.work(i).attention_flops;
  EXPECT_NEAR(flops, all, 1e-9 * all);
}

// Where attention takes longer than a hop, forward does not wait for any.
TEST(Context, HopsHideBehindAttention) {
  plan::DeviceModel d = plan::gpu_model(plan::Target::h200);
  d.half.head_64 = d.half.head_128 = {{1e9}, {1e9}}, d.sustained = 1, d.launch = 0;
  const auto waits = [&](const std::vector<std::string>& more) {
    const plan::StepPlan p = plan_of_context(4, more);
    const auto forward = [&](double bandwidth) {
      d.node = {0, bandwidth};
      return plan::predict(p, p.largest(), d).phases["forward"];
    };
    return forward(1e9) - forward(1e30);
  };
  const double all = 2 * 1024 * (2 * 2 * 16) * 2;  // keys and values of a layer
  EXPECT_NEAR(waits({"device=cuda", "precision=bf16"}), 8 * 2 * 0.75 * all / 1e9, 1e-9);
  EXPECT_NEAR(waits({kRing, "device=cuda", "precision=bf16"}), 0, 1e-9);
}

// Three exchanges of a layer's keys and values in each micro-batch, and nothing else between them.
TEST(Context, SendsKeysAndValues) {
  for (const std::string recompute : {"none", "full"})
    for (const std::string exchange : {"gather", "ring"}) {
      const bool ring = exchange == "ring";
      const plan::StepPlan p =
          plan_of_context(4, {"recompute=" + recompute, "parallel.context_exchange=" + exchange});
      const auto all = plan::textbook_traffic(p);
      const auto found = std::ranges::find(all, "context", &plan::TextbookTraffic::axes);
      ASSERT_NE(found, all.end());
      const double one = 3.0 / 4 * (2 * 1024) * (2 * 2 * 16) * 4;  // ring of 4, fp32
      // Layers, micro-batches. Sums of gradients make one hop more.
      EXPECT_DOUBLE_EQ(found->textbook, (2 + (ring ? 4.0 / 3 : 1)) * one * 8 * 2);
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
