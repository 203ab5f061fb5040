// What ZeRO leaves of parameters and gradients on a rank, and when buckets are whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "plan/run_memory.h"

namespace tfm {
namespace {

constexpr int kShards = 4, kBlocks = 6;

plan::StepPlan plan_with(int zero, std::vector<std::string> overrides = {}) {
  overrides.push_back("parallel.zero=" + std::to_string(zero));
  config::Config c = config::parse_config(
      "model: {family: decoder, vocab_size: 256, d_model: 64, n_layers: 6, n_heads: 4}\n"
      "train: {global_batch_size: 8, seq_len: 16}\n"
      "data: {train: {type: tokens, path: none.bin}}\n",
      "test", overrides);
  config::resolve_for_ranks(c, kShards);
  return plan::make_step_plan(c, comm::Mesh(config::layout_of(c)));
}

std::int64_t bytes_of(const plan::StepPlan& p, const char* category) {
  return p.memory.categories.at(category);
}

TEST(Zero, LeavesARankItsShare) {
  const plan::StepPlan none = plan_with(0);
  for (int zero = 1; zero <= 3; ++zero) {
    const plan::StepPlan p = plan_with(zero);
    const std::int64_t whole = p.model().parameters().flat_elements() * 4;
    EXPECT_LE(whole, bytes_of(none, plan::kParameters) * 1.02) << "padding of buckets";
    EXPECT_EQ(bytes_of(p, plan::kParameters), zero < 3 ? whole : whole / kShards);
    EXPECT_EQ(bytes_of(p, plan::kGradients), zero < 2 ? whole : whole / kShards);
    EXPECT_EQ(bytes_of(p, plan::kOptimizer), 2 * whole / kShards);
  }
}

// The most bytes of whole buckets that are live at once, of parameters or of gradients.
std::int64_t whole_at_once(const graph::Program& program, graph::Exchange::Of of) {
  std::map<int, std::int64_t> change;
  for (const graph::Exchange& x : program.exchanges()) {
    if (x.of != of) continue;
    const graph::Buffer& b = program.buffers()[static_cast<std::size_t>(x.buffer)];
    change[b.first] += b.bytes, change[b.last + 1] -= b.bytes;
  }
  std::int64_t now = 0, most = 0;
  for (const auto& [step, bytes] : change) most = std::max(most, now += bytes);
  return most;
}

std::int64_t largest_layer(const plan::StepPlan& p) {
  std::int64_t most = 0;
  for (const optim::Bucket& b : p.buckets()) most = std::max(most, (b.end - b.begin) * 4);
  return most;
}

// One layer, on a device the next one with it, is whole at a time.
TEST(Zero, GathersALayerAtATime) {
  for (const std::string recompute : {"none", "selective", "full"})
    for (const std::string device : {"cpu", "cuda"}) {
      SCOPED_TRACE(recompute + " on " + device);
      const plan::StepPlan p =
          plan_with(3, {"recompute=" + recompute, "device=" + device, "model.vocab_size=97"});
      const graph::Program &training = p.largest().train_program,
                           &evaluation = p.largest().evaluation.program();
      const int layers = device == "cpu" ? 1 : 2;
      using enum graph::Exchange::Of;
      EXPECT_EQ(whole_at_once(training, parameters) > largest_layer(p), layers == 2);
      EXPECT_LE(whole_at_once(training, parameters), layers * largest_layer(p));
      EXPECT_LE(whole_at_once(evaluation, parameters), layers * largest_layer(p));
      EXPECT_LE(whole_at_once(training, gradients),
                layers * largest_layer(p) + 97 * 64 * 4 + 4096);  // a tied table is final last
      const bool reduced_beside = std::ranges::any_of(
          training.exchanges(),
          [](const graph::Exchange& x) { return x.of == gradients && x.overlaps(); });
      EXPECT_EQ(reduced_beside, layers == 2);
      for (const graph::Program* program : {&training, &evaluation})
        for (const graph::Exchange& x : program->exchanges())
          if (x.of == parameters && x.start > 0) {
            EXPECT_EQ(x.overlaps(), layers == 2);
          }
    }
}

// As often as in the paper: layers are gathered for forward and for backward, gradients reduced
// once, in every micro-batch.
TEST(Zero, MovesThreeTimesTheParameters) {
  const plan::StepPlan p = plan_with(3);
  std::map<int, int> gathered, reduced;
  for (const graph::Exchange& x : p.largest().train_program.exchanges())
    ++(x.of == graph::Exchange::Of::parameters ? gathered : reduced)[x.bucket];
  ASSERT_EQ(p.buckets().size(), 3u + kBlocks);  // token table, positions, layers, last norm
  for (int b = 0; b < static_cast<int>(p.buckets().size()); ++b) {
    const std::string name =
        p.model().parameters().spec(p.buckets()[b].parameters[0]).parts[0].name;
    EXPECT_EQ(reduced[b], 1) << name;
    // Backward of positions reads none; the last norm stays between forward and backward.
    EXPECT_EQ(gathered[b], name.starts_with("position") || name.starts_with("final_norm") ? 1 : 2)
        << name;
  }
}

// Each of several micro-batches, of which stage 1 then keeps shares only.
TEST(Zero, DeterministicNumericsSumEveryMicroBatch) {
  for (int zero = 0; zero <= 3; ++zero)
    for (const int replicas : {1, 2})
      for (const int micro_batches : {1, 2}) {
        if (zero == 0 && replicas > 1) continue;
        SCOPED_TRACE(std::to_string(zero) + ", " + std::to_string(replicas) + " replicas");
        const plan::StepPlan p = plan_with(
            zero, {"numerics=deterministic", "parallel.replicas=" + std::to_string(replicas),
                   "train.micro_batch_size=" + std::to_string(2 / micro_batches)});
        const std::int64_t whole = p.model().parameters().flat_elements() * 4;
        const bool shares = zero > 1 || (zero == 1 && micro_batches > 1);
        EXPECT_EQ(bytes_of(p, plan::kGradients), shares ? whole * replicas / kShards : whole);
        const graph::MicroBatch first{.first = true, .last = false};
        for (const graph::Exchange& x : p.largest().train_program.exchanges()) {
          if (x.of == graph::Exchange::Of::gradients) {
            EXPECT_EQ(p.largest().train_program.runs(x, first), zero > 1 || micro_batches > 1);
          } else if (x.of == graph::Exchange::Of::shares) {
            EXPECT_EQ(p.largest().train_program.runs(x, first), micro_batches > 1);
          }
        }
      }
}

TEST(Zero, KeepsBucketsWithinTheirSize) {
  const plan::StepPlan p = plan_with(3, {"parallel.bucket_bytes=32Ki"});
  EXPECT_GT(p.buckets().size(), 2u * kBlocks);
  for (const optim::Bucket& b : p.buckets())
    EXPECT_TRUE(b.parameters.size() == 1 || (b.end - b.begin) * 4 <= 32 << 10)
        << "a bucket of several parameters";
}

}  // namespace
}  // namespace tfm
