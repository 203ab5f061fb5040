// Predicted times against sums worked out by hand, on devices with round numbers.
#include <gtest/gtest.h>

#include <limits>

#include "models/registry.h"
#include "plan/checkpoint_size.h"
#include "plan/live_memory.h"
#include "plan/prediction.h"
#include "plan/rank_plans.h"
#include "plan/suggest.h"

namespace tfm {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

config::Config config_with(const std::string& model, std::vector<std::string> overrides = {}) {
  overrides.push_back("parallel.sequence=false");
  return config::parse_config(
      "model: {family: decoder, " + model + "}\ndata: {train: {type: tokens, path: none.bin}}\n",
      "test", overrides);
}

plan::StepPlan plan_of(config::Config c, int ranks = 1) {
  config::resolve_for_ranks(c, ranks);
  return plan::make_step_plan(c, comm::Mesh(config::layout_of(c)));
}

// 64 tokens of 4 sequences; d 32, f 128, 2 layers, vocabulary 64.
plan::StepPlan small(const std::vector<std::string>& overrides = {}, int ranks = 1) {
  std::vector<std::string> all{"train.seq_len=16", "train.global_batch_size=4",
                               "train.micro_batch_size=4"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return plan_of(config_with("vocab_size: 64, d_model: 32, n_layers: 2, n_heads: 4", all), ranks);
}
constexpr double kTokens = 64, kLayerWeights = 12 * 32 * 32 * 2, kHeadWeights = 64 * 32;

// Everything takes no time but what a test sets.
plan::DeviceModel ideal() {
  const plan::AttentionRates attention{{kInfinite}, {kInfinite}};
  const plan::DeviceModel::Rates rates{
      .peak = kInfinite, .product = kInfinite, .head_64 = attention, .head_128 = attention};
  const plan::DeviceModel::Link link{0, kInfinite};
  return {.name = "ideal",
          .wide = rates,
          .half = rates,
          .bandwidth = kInfinite,
          .node = link,
          .network = link};
}
double seconds(const plan::StepPlan& p, const plan::DeviceModel& d) {
  return plan::predict(p, p.largest(), d).seconds();
}
double seconds(const plan::StepPlan& p, const plan::DeviceModel& d, plan::Limit l) {
  return plan::predict(p, p.largest(), d).limits[static_cast<std::size_t>(l)];
}

TEST(Prediction, Tf32HasHalfTheRateOf16Bits) {
  plan::DeviceModel gpu = plan::gpu_model(plan::Target::h200);
  const graph::Work::Product p{.m = 8192, .n = 8192, .k = 8192};
  const double fp32 = gpu.product_seconds(p, DType::f32),
               bf16 = gpu.product_seconds(p, DType::bf16);
  gpu.use_tf32();
  EXPECT_NEAR(gpu.product_seconds(p, DType::f32), 2 * bf16, 1e-12);
  EXPECT_GT(fp32, 5 * bf16);
}

TEST(Prediction, FlopsOfAToken) {
  const auto per_token = [](const std::string& model, std::int64_t length) {
    const plan::StepPlan p = plan_of(config_with(
        model, {"train.seq_len=" + std::to_string(length), "train.global_batch_size=1"}));
    return std::pair{p.matmul_flops() / static_cast<double>(length) * 1e-9,
                     p.nominal_flops() / static_cast<double>(length) * 1e-9};
  };
  // 6 (12 layers 12 d^2 + V d) and 6 or 12 layers T d of attention.
  const auto [exact, nominal] = per_token("preset: gpt2-124m, vocab_size: 50304", 1024);
  EXPECT_NEAR(exact, 0.798, 5e-4);
  EXPECT_NEAR(nominal, 0.855, 5e-4);
  const auto [exact_xl, nominal_xl] = per_token("preset: gpt2-1.5b", 1024);
  EXPECT_NEAR(exact_xl, 9.802, 1e-3);
  EXPECT_NEAR(nominal_xl, 10.274, 1e-3);
  const auto [exact_llama, nominal_llama] = per_token("preset: llama-1b", 4096);
  EXPECT_NEAR(exact_llama, 8.220, 1e-3);
  EXPECT_NEAR(nominal_llama, 9.025, 1e-3);
}

TEST(Prediction, AProductTakesItsFlopsOrItsBytes) {
  plan::DeviceModel d = ideal();
  d.wide.product = d.half.product = 1e9;
  EXPECT_DOUBLE_EQ(d.product_seconds({100, 200, 300}, DType::f32), 0.012);
  EXPECT_DOUBLE_EQ(d.product_seconds({100, 200, 300, 5}, DType::f32), 0.06);
  d.wide.product_half_size = 100;
  EXPECT_NEAR(d.product_seconds({100, 200, 400, 5}, DType::f32), 0.08 * 1.5, 1e-12);
  d.bandwidth = 1e3;  // (30000 + 60000) factors, 20000 results
  EXPECT_DOUBLE_EQ(d.product_seconds({100, 200, 300}, DType::f32), 440);
  EXPECT_DOUBLE_EQ(d.product_seconds({100, 200, 300}, DType::bf16), 220);
  EXPECT_DOUBLE_EQ(d.product_seconds({.m = 100, .n = 200, .k = 300, .sum = true}, DType::bf16),
                   180 + 160);
  d.kind = config::DeviceKind::cpu;  // one after the other
  EXPECT_DOUBLE_EQ(d.product_seconds({100, 200, 300}, DType::bf16), 0.012 + 220);
}

TEST(Prediction, TilesThatDoNotFillTheDeviceAreLost) {
  plan::DeviceModel d = ideal();
  d.half.product = 1e12;
  d.multiprocessors = 132;
  const auto efficiency = [&](const graph::Work::Product& p) {
    return p.flops() / 1e12 / d.product_seconds(p, DType::bf16);
  };
  EXPECT_NEAR(efficiency({11 * 256, 12 * 128, 6400}), 6400.0 / 6592, 1e-9);  // one full wave
  EXPECT_NEAR(efficiency({256, 128, 256}), 0.55 * 8 / 132 * 256 / 448,
              1e-9);  // eight of the smallest tiles
  EXPECT_GT(efficiency({768, 768, 65536}),
            0.7);  // by cuts of the sum: 18 tiles would fill a seventh
}

TEST(Prediction, AttentionByHeadSizeLengthAndPass) {
  plan::DeviceModel d = ideal();
  d.half.head_64 = {{100, 1000}, {50, 500}};
  d.half.head_128 = {{150, 1000}, {75, 500}};
  const auto seconds = [&](std::int64_t head, std::int64_t keys, bool backward, bool causal) {
    return d.attention_seconds({.attention_flops = 300,
                                .masked_flops = causal ? 300.0 : 0.0,
                                .head_size = head,
                                .keys = keys},
                               backward, DType::bf16);
  };
  EXPECT_DOUBLE_EQ(seconds(64, 1000, false, true), 2 * 3);
  EXPECT_DOUBLE_EQ(seconds(64, 1000, true, true), 1.5 * 6);
  EXPECT_DOUBLE_EQ(seconds(128, 1000, false, true), 2 * 2);
  EXPECT_DOUBLE_EQ(seconds(64, 1000, false, false), (1 + 1.0 / 3) * 3);  // a third of the length
  EXPECT_DOUBLE_EQ(seconds(96, 1000, false, true), 2 * 300 * (64.0 / 100 + 128.0 / 150) / 2 / 96);
  EXPECT_DOUBLE_EQ(seconds(32, 1000, false, true),
                   2 * 300 * (64.0 / 100 + (2 * 64.0 / 100 - 128.0 / 150)) / 2 / 32);
  d.sustained = 0.5;
  EXPECT_DOUBLE_EQ(seconds(64, 1000, false, true), 2 * 2 * 3);
  d.half.product = 1e9;
  EXPECT_DOUBLE_EQ(d.product_seconds({100, 200, 300}, DType::bf16), 2 * 0.012);
}

TEST(Prediction, RingsOfCollectives) {
  plan::DeviceModel d = ideal();
  d.node = {1, 1e9};
  d.network = {2, 0.5e9};
  const auto time = [&](comm::Collective kind, comm::AxisSet axes, comm::Layout layout) {
    return d.collective_seconds({kind, axes, 8'000'000'000}, layout);
  };
  EXPECT_DOUBLE_EQ(time(comm::Collective::all_reduce_sum, comm::kData, {8, 1}), 2 * (7 + 7));
  EXPECT_DOUBLE_EQ(time(comm::Collective::all_gather, comm::Axis::tensor, {2, 4}), 6 + 3);
  EXPECT_DOUBLE_EQ(time(comm::Collective::all_gather, comm::Axis::tensor, {8, 1}), 0);
  EXPECT_DOUBLE_EQ(time(comm::Collective::reduce_scatter, comm::kData, {16, 1}),
                   7.5 + 13 + 2 * 2);  // eight links of a node are faster than the ring within
  EXPECT_DOUBLE_EQ(time(comm::Collective::reduce_scatter, comm::kData, {2, 8}),
                   4 / 0.5 + 2);  // each rank of a node in a group of its own
  EXPECT_DOUBLE_EQ(time(comm::Collective::ring_shift, comm::kData, {8, 1}), 8 + 1);
  EXPECT_DOUBLE_EQ(time(comm::Collective::ring_shift, comm::kData, {16, 1}),
                   8 / 0.5 + 2);  // as long as its slowest link
}

TEST(Prediction, BytesOfUnfusedKernels) {
  graph::Recorder r(DType::bf16);
  const graph::Value table = r.parameter(0, "table", {100, 8}), gain = r.parameter(1, "gain", {8});
  const graph::Value ids = r.input("ids", {4}, DType::i32);
  const graph::Value x =
      ops::embedding(r, ids, table, {.vocab_begin = 0, .vocab_end = 100});  // (4, 8): 64 bytes
  const graph::Value n = ops::norm(r, x, {.rms = true}, gain);
  const graph::Value y =
      ops::dropout_add(r, n, x, 0.5, {.rows = {.sequence_length = 4}, .cols_total = 8});
  auto tape = std::make_shared<graph::Recorder>(std::move(r));
  const graph::Program p = graph::plan(tape, {.outputs = {y}, .seeds = {y}});
  std::map<std::string, std::int64_t> bytes, added;
  for (std::size_t i = 0; i < p.instructions().size(); ++i) {
    const std::string name =
        std::string(tape->nodes()[static_cast<std::size_t>(p.instructions()[i].node)].op->kind()) +
        "." + std::string(graph::name_of(p.instructions()[i].phase));
    bytes[name] = p.moved_bytes(i, false);
    added[name] = p.moved_bytes(i, true);
  }
  EXPECT_EQ(bytes["embedding.forward"], 16 + 64 + 64);      // ids, four rows, result
  EXPECT_EQ(bytes["norm.forward"], 64 + 16 + 64 + 2 * 16);  // x, gain, y, two fp32 statistics
  EXPECT_EQ(bytes["residual.forward"], 3 * 64);
  EXPECT_EQ(bytes["residual.backward"], 64 + 64);  // the residual's gradient keeps its memory
  EXPECT_EQ(bytes["norm.backward"],
            64 + 16 + 2 * 16 + 64 + 2 * 64 + 32);  // x, gain, statistics, dy, dx added to, dgain
  EXPECT_EQ(added["norm.backward"], bytes["norm.backward"] + 32);
  EXPECT_EQ(bytes["embedding.backward"],
            16 + 64 + 3200 + 2 * 128);  // zeroes the table, then adds four fp32 rows
  EXPECT_EQ(added["embedding.backward"], 16 + 64 + 2 * 128);
}

TEST(Prediction, AGradientIsReadForEachThatIsWritten) {
  graph::Recorder r(DType::f32);
  const graph::Value x = r.input("x", {4, 8}, DType::f32), table = r.parameter(0, "table", {4, 8});
  const graph::Value a =
      ops::activation(r, ops::linear(r, x, table, {}), kernels::Activation::relu, false);
  const graph::Value y = ops::dropout_add(
      r, a, a, 0.5, {.rows = {.sequence_length = 4}, .cols_total = 4});  // (4, 4): 64 bytes
  const graph::Program p =
      graph::plan(std::make_shared<graph::Recorder>(std::move(r)), {.outputs = {y}, .seeds = {y}});
  const auto backward = std::ranges::find_if(p.instructions(), [](const graph::Instruction& s) {
    return s.node == 2 && s.phase == graph::Phase::backward;
  });
  const auto i = static_cast<std::size_t>(backward - p.instructions().begin());
  ASSERT_LT(i, p.instructions().size());
  EXPECT_EQ(p.work(i).kernels, 2);
  EXPECT_EQ(p.moved_bytes(i, false), 2 * 64 + 64 + 2 * 64);  // dy twice; assigned, then added to
}

TEST(Prediction, ProductsAndAttentionOfASmallDecoder) {
  plan::DeviceModel d = ideal();
  d.wide.product = 1e6;
  EXPECT_NEAR(seconds(small(), d), 6 * (kLayerWeights + kHeadWeights) * kTokens / 1e6, 1e-9);
  EXPECT_EQ(plan::predict(small(), small().largest(), d).limited_by(), plan::Limit::products);
  // Again: the products of both layers, but for the last one of each, whose result nothing in
  // backward reads.
  EXPECT_NEAR(seconds(small({"recompute=full"}), d) - seconds(small(), d),
              2 * (kLayerWeights - 2 * 4 * 32 * 32) * kTokens / 1e6, 1e-9);
  EXPECT_NEAR(plan::predict(small({"recompute=full"}), small({"recompute=full"}).largest(), d)
                  .phases.at("recompute"),
              2 * (kLayerWeights - 2 * 4 * 32 * 32) * kTokens / 1e6, 1e-9);
  d = ideal();
  d.wide.head_64 = d.wide.head_128 = {{1e6}, {1e6}};
  EXPECT_NEAR(seconds(small(), d), 3.5 * 2 * (2.0 * kTokens * 16 * 32) / 1e6, 1e-9);
  EXPECT_NEAR(seconds(small({"recompute=full"}), d), 4.5 * 2 * (2.0 * kTokens * 16 * 32) / 1e6,
              1e-9);
}

TEST(Prediction, TheUpdateMovesEveryElement) {
  plan::DeviceModel d = ideal();
  d.bandwidth = 1e6;
  const auto elements = static_cast<double>(small().model().parameters().flat_elements());
  EXPECT_NEAR(seconds(small(), d, plan::Limit::optimizer), elements * (8 + 4 + 16 + 4) / 1e6,
              1e-9);  // weights, gradient, moments; norm
  EXPECT_NEAR(seconds(small({"precision=bf16"}), d, plan::Limit::optimizer),
              elements * (8 + 4 + 16 + 4) / 1e6, 1e-9);  // weights in two halves
  EXPECT_NEAR(seconds(small({"precision=fp16"}), d, plan::Limit::optimizer),
              elements * (8 + 4 + 16 + 2 + 4) / 1e6, 1e-9);
  EXPECT_NEAR(seconds(small({"optimizer.ema=0.9"}), d, plan::Limit::optimizer),
              elements * (32 + 8) / 1e6, 1e-9);
  const plan::StepPlan zero = small({"parallel.zero=1", "train.global_batch_size=16"}, 4);
  EXPECT_NEAR(seconds(zero, d, plan::Limit::optimizer),
              static_cast<double>(zero.model().parameters().flat_elements()) * 32 / 4 / 1e6, 1e-9);
}

TEST(Prediction, ReductionsAreHiddenWhereTheyRunBesideBackward) {
  plan::DeviceModel d = ideal();
  d.node.bandwidth = d.network.bandwidth = 1e6;
  const plan::StepPlan p = small({"train.global_batch_size=16", "parallel.bucket_bytes=16Ki"}, 4);
  const double all = 2 * 0.75 *
                     (static_cast<double>(p.model().parameters().flat_elements()) * 4 + 2 * 8 +
                      sizeof(SquareSum)) /
                     1e6;
  EXPECT_NEAR(seconds(p, d, plan::Limit::communication), all, 1e-9);
  d.overlaps = true;
  EXPECT_NEAR(seconds(p, d, plan::Limit::communication), all, 1e-9) << "nothing to hide behind";
  d.wide.product = 1e3;
  const double exposed = seconds(p, d, plan::Limit::communication);
  EXPECT_LT(exposed, all / 2);
  const optim::Bucket& last = p.buckets().back();  // final when backward ends
  EXPECT_GE(exposed, 2 * 0.75 * static_cast<double>(last.end - last.begin) * 4 / 1e6);
}

TEST(Prediction, TensorCollectivesOfBackwardAreHiddenBehindGradientsOfWeights) {
  plan::DeviceModel d = ideal();
  d.node.bandwidth = d.network.bandwidth = 1e6;
  d.wide.product = 1e3;
  d.overlaps = true;
  const plan::StepPlan joined = small({"device=cuda", "parallel.tensor=2"}, 2),
                       apart = small({"parallel.tensor=2"}, 2);
  double all = 0;
  for (const comm::CollectiveCall& c : joined.collectives())
    all += d.collective_seconds(c, joined.mesh.layout) *
           (c.bytes == 64 * 32 * 4 && c.axes == comm::Axis::tensor);
  // Every layer has two such entries and as many other collectives of this kind in forward; the
  // head and the embedding have one each.
  EXPECT_NEAR(seconds(apart, d, plan::Limit::communication) -
                  seconds(joined, d, plan::Limit::communication),
              all * 4 / 10, 1e-9);
}

TEST(Prediction, KernelsTakeTimeToLaunch) {
  plan::DeviceModel d = ideal();
  d.launch = 1;
  const plan::StepPlan once = small(), twice = small({"train.global_batch_size=8"});
  const double launches = seconds(once, d, plan::Limit::launches);
  EXPECT_GT(launches, 2 * 12);
  EXPECT_DOUBLE_EQ(seconds(twice, d, plan::Limit::launches), 2 * launches);
  d.wide.product = 1;  // products take longer than a launch
  EXPECT_LT(seconds(once, d, plan::Limit::launches), launches);
}

TEST(Prediction, GrowsWithTheWork) {
  for (const plan::Target target :
       {plan::Target::h200, plan::Target::h100, plan::Target::a100, plan::Target::a100_40gb,
        plan::Target::b200, plan::Target::l40s}) {
    const plan::DeviceModel d = plan::gpu_model(target);
    const std::string& name = d.name;
    EXPECT_EQ(config::value_of<plan::Target>(name), target);
    const auto gpt2 = [&](const std::vector<std::string>& overrides) {
      return seconds(plan_of(config_with("preset: gpt2-124m", overrides)), d);
    };
    const double once =
        gpt2({"precision=bf16", "train.global_batch_size=32", "train.micro_batch_size=16"});
    EXPECT_NEAR(
        gpt2({"precision=bf16", "train.global_batch_size=64", "train.micro_batch_size=16"}) / once,
        2, 0.03)
        << name;
    EXPECT_GT(gpt2({"precision=bf16", "train.global_batch_size=32", "train.micro_batch_size=16",
                    "recompute=full"}),
              1.1 * once)
        << name;
    EXPECT_GT(gpt2({"precision=fp32", "train.global_batch_size=32", "train.micro_batch_size=16"}),
              3 * once)
        << name;
  }
  EXPECT_FALSE(config::value_of<plan::Target>("h300"));
  const plan::DeviceModel one = plan::cpu_model(plan::reference_core(), 1 << 30, 8, 1, 8),
                          four = plan::cpu_model(plan::reference_core(), 1 << 30, 8, 4, 2);
  EXPECT_DOUBLE_EQ(one.wide.product, 4 * four.wide.product);
  EXPECT_EQ(plan::cpu_model(plan::reference_core(), 1 << 30, 2, 4, 2).wide.product,
            plan::reference_core().wide.product / 2)
      << "four ranks on two cores";
  EXPECT_EQ(one.memory_bytes, 4 * four.memory_bytes);
}

TEST(Fit, TheFirstChangeThatFits) {
  const config::Config c =
      config_with("vocab_size: 64, d_model: 64, n_layers: 4, n_heads: 4, dropout: 0.1",
                  {"train.seq_len=64", "train.global_batch_size=16", "train.micro_batch_size=4"});
  const auto bytes = [&](std::int64_t micro, config::Recompute recompute) {
    config::Config other = c;
    other.train.micro_batch_size = micro;
    other.recompute = recompute;
    return plan_of(other, 4).memory.total();
  };
  using Changes = std::vector<std::string>;
  const auto changes = [&](std::int64_t usable) {
    const auto fit = plan::nearest_fit(c, 4, usable);
    Changes all;
    if (!fit) return Changes{"none"};
    for (const config::Change& change : plan::changes_of(c, fit->choice))
      all.push_back(change.key + "=" + change.now);
    return all;
  };
  EXPECT_EQ(changes(bytes(2, config::Recompute::none)), Changes{"train.micro_batch_size=2"});
  EXPECT_EQ(changes(bytes(1, config::Recompute::none)), Changes{"train.micro_batch_size=1"});
  const std::int64_t full = bytes(1, config::Recompute::full);
  EXPECT_EQ(changes(full), (Changes{"recompute=full", "train.micro_batch_size=1"}));
  EXPECT_EQ(changes(full - 1).front(), "parallel.zero=1");
  EXPECT_EQ(changes(1000), Changes{"none"});
}

TEST(Prediction, MessagesAndExchangesOfAllPairs) {
  plan::DeviceModel d = ideal();
  d.ranks_per_node = 4;
  d.node = {1, 1e9};
  d.network = {2, 0.5e9};
  const auto time = [&](comm::CollectiveCall c, comm::Layout layout) {
    c.bytes = 8'000'000'000;
    return d.collective_seconds(c, layout);
  };
  using enum comm::Collective;
  // Stages are the outermost axis: 2 x 2 ranks of a stage leave the next one in the same node.
  const comm::Layout near({.data = 1, .tensor = 2, .pipeline = 2}),
      far({.data = 2, .tensor = 2, .pipeline = 2});
  EXPECT_EQ(near.stride(nn::kStageAxes), 2);
  EXPECT_EQ(far.stride(nn::kStageAxes), 4);
  EXPECT_DOUBLE_EQ(time({send, nn::kStageAxes, 0, {}, 1}, near), 1 + 8);
  EXPECT_DOUBLE_EQ(time({send, nn::kStageAxes, 0, {}, 1}, far), 2 + 16);
  EXPECT_DOUBLE_EQ(time({receive, nn::kStageAxes, 0, {}, 1}, far), 0);
  EXPECT_DOUBLE_EQ(time({barrier, comm::kWorld}, far), 0);
  // Of 4 ranks a quarter to each other one over the node; of 8 also four eighths over the network.
  EXPECT_DOUBLE_EQ(time({all_to_all, comm::kData}, {4, 1}), 3 * 2 + 1);
  EXPECT_DOUBLE_EQ(time({all_to_all, comm::kData}, {8, 1}), 4 * 1 / 0.5 + 2);
  EXPECT_DOUBLE_EQ(time({all_to_all, comm::kData}, {2, 4}), 4 / 0.5 + 2);
  // Two hops of the ring cross nodes, over as many links as a node has ranks: 2e9 > 1e9 within it.
  EXPECT_DOUBLE_EQ(time({all_gather, comm::kData}, {8, 1}), 7 + 2 * 2 + 5 * 1);
  d.network.bandwidth = 0.125e9;  // four together are slower than a link within the node
  EXPECT_DOUBLE_EQ(time({all_gather, comm::kData}, {8, 1}), 7 / 0.5 + 2 * 2 + 5 * 1);
  EXPECT_DOUBLE_EQ(time({all_gather, comm::kData}, {2, 4}), 4 / 0.125 + 2) << "one of a node";
  d.network.bandwidth = 2e9;
  EXPECT_DOUBLE_EQ(time({all_gather, comm::kData}, {2, 4}), 4 / 2.0 + 2) << "on its own link";
}

TEST(Prediction, BytesThatARankSends) {
  using enum comm::Collective;
  const comm::Layout four{4, 1};
  const auto sent = [&](comm::Collective kind, const comm::Layout& layout) {
    return plan::ring_bytes({kind, comm::kData, 1000}, layout);
  };
  EXPECT_DOUBLE_EQ(sent(all_reduce_sum, four), 1500);
  EXPECT_DOUBLE_EQ(sent(all_reduce_max, four), 1500);
  for (const auto kind : {all_gather, reduce_scatter, all_to_all})
    EXPECT_DOUBLE_EQ(sent(kind, four), 750);
  EXPECT_DOUBLE_EQ(sent(ring_shift, four), 1000);
  EXPECT_DOUBLE_EQ(sent(send, four), 1000);
  EXPECT_DOUBLE_EQ(sent(receive, four), 0);
  EXPECT_DOUBLE_EQ(sent(all_reduce_sum, {1, 4}), 0);
}

// A step of m micro-batches on p equal stages takes (m + p - 1) / m of a stage's passes, with v
// chunks of each (m v + p - 1) / (m v); of unequal ones the slowest counts, and the others once.
TEST(Prediction, APipelineFillsAndDrains) {
  plan::DeviceModel d = ideal();
  d.wide.product = 1e6;
  for (const auto& [schedule, chunks] : {std::pair{"1f1b", 1}, {"interleaved", 2}}) {
    config::Config c =
        config_with("vocab_size: 64, d_model: 32, n_layers: 4, n_heads: 4",
                    {"train.seq_len=16", "train.global_batch_size=8", "train.micro_batch_size=2",
                     "parallel.pipeline=2", std::string("parallel.schedule=") + schedule});
    config::resolve_for_ranks(c, 2);
    const plan::RankPlans plans(c);
    const double layer = 6.0 * 12 * 32 * 32 * 8 * 16 / 1e6, head = 6 * kHeadWeights * 8 * 16 / 1e6;
    const plan::Prediction p = plan::predict(plans.stages(), d);
    EXPECT_NEAR(p.seconds(), 2 * layer + head + 2 * layer / (4 * chunks), 1e-9) << schedule;
    EXPECT_NEAR(p.phases.at("bubble"), 2 * layer / (4 * chunks), 1e-9);
    EXPECT_NEAR(p.limits[static_cast<std::size_t>(plan::Limit::bubble)], 2 * layer / (4 * chunks),
                1e-9);
    EXPECT_NEAR(p.layers, p.seconds(), 1e-9) << "nothing else takes time";
  }
  config::Config one = config_with("vocab_size: 64, d_model: 32, n_layers: 4, n_heads: 4",
                                   {"train.seq_len=16", "train.global_batch_size=8"});
  config::resolve_for_ranks(one, 1);
  EXPECT_FALSE(plan::predict(plan::RankPlans(one).stages(), d).phases.contains("bubble"));
}

// What an instruction finds in use: the buffers from whose first to whose last one it lies.
TEST(LiveMemory, IsThatOfTheBuffersInUse) {
  for (const char* recompute : {"recompute=none", "recompute=full"}) {
    const plan::StepPlan p = small({recompute});
    const graph::Program& program = p.largest().train_program;
    const std::vector<std::int64_t> live = plan::live_bytes(program);
    ASSERT_EQ(live.size(), program.instructions().size());
    std::int64_t most = 0;
    for (std::size_t i = 0; i < live.size(); ++i) {
      std::int64_t bytes = 0;
      for (const graph::Buffer& b : program.buffers())
        if (b.in_arena() && b.first >= 0 && b.first <= static_cast<int>(i) &&
            static_cast<int>(i) <= b.last)
          bytes += b.bytes;
      EXPECT_EQ(live[i], bytes) << i;
      most = std::max(most, bytes);
    }
    EXPECT_LE(most, p.memory.total());
    EXPECT_GT(most, program.arena_bytes() / 2);
  }
}

// Weights, moments and the average once, in fp32, whatever the layout and the precision.
TEST(CheckpointSize, IsTheSameOnEveryLayout) {
  const auto bytes = [](std::vector<std::string> overrides, int ranks) {
    overrides.insert(overrides.begin(),
                     {"train.seq_len=16", "train.global_batch_size=8", "device=cpu"});
    config::Config c =
        config_with("vocab_size: 60, d_model: 32, n_layers: 2, n_heads: 4", overrides);
    config::resolve_for_ranks(c, ranks);
    std::int64_t all = 0;
    for (int r = 0; r < ranks; ++r)
      all += plan::checkpoint_bytes(plan::make_step_plan(c, comm::Mesh(config::layout_of(c), r)));
    return all;
  };
  // Two layers of 12 d^2 + 13 d, 60 tokens and 16 positions, the last norm's gain and bias.
  const std::int64_t parameters = 2 * (12 * 32 * 32 + 13 * 32) + (60 + 16) * 32 + 2 * 32;
  EXPECT_EQ(bytes({"optimizer.type=sgd", "optimizer.momentum=0"}, 1), 4 * parameters);
  EXPECT_EQ(bytes({"optimizer.type=sgd", "optimizer.momentum=0.9"}, 1), 8 * parameters);
  EXPECT_EQ(bytes({}, 1), 12 * parameters);
  EXPECT_EQ(bytes({"optimizer.ema=0.9"}, 1), 16 * parameters);
  for (const std::string rule : {"adamw", "adafactor", "muon", "lamb"}) {
    const std::string type = "optimizer.type=" + rule;
    const std::int64_t one = bytes({type}, 1);
    EXPECT_EQ(bytes({type, "precision=bf16"}, 1), one) << "masters in place of weights";
    EXPECT_EQ(bytes({type, "precision=fp16"}, 1), one);
    for (const auto& layout : std::vector<std::vector<std::string>>{
             {"parallel.zero=0"},
             {"parallel.zero=1"},
             {"parallel.zero=3", "precision=bf16"},
             {"parallel.tensor=2"},
             {"parallel.tensor=4", "parallel.zero=1", "precision=fp16"},
             {"parallel.pipeline=2", "parallel.zero=2"},
             {"parallel.replicas=2", "parallel.zero=1"},
             {"parallel.context=2", "parallel.tensor=2"}}) {
      std::vector<std::string> overrides = layout;
      overrides.push_back(type);
      EXPECT_EQ(bytes(overrides, 4), one) << rule << " " << layout[0];
    }
  }
  EXPECT_LT(bytes({"optimizer.type=adafactor"}, 1), 5 * parameters);
}

// Most labels of a micro-batch are agreed on where a GPU leaves out rows without a label.
TEST(StepPlan, SumsOfAStep) {
  const auto sums = [](const std::string& family, const std::string& type,
                       const std::string& device) {
    config::Config c = config::parse_config(
        "model: {family: " + family +
            ", vocab_size: 64, d_model: 32, n_layers: 1, n_heads: 4}\ndata: {train: {type: " +
            type + ", path: none.bin}}\n",
        "test", {"train.seq_len=16", "train.global_batch_size=8", "device=" + device});
    config::resolve_for_ranks(c, 2);
    const auto all = plan::sums_of_step(c, config::layout_of(c), 3);
    EXPECT_EQ(plan::packs_rows(c), all.size() == 4);
    EXPECT_EQ(all.front(), all.back()) << "labels and losses";
    EXPECT_EQ(all.front().bytes, 3 * 8);
    EXPECT_EQ(all[all.size() - 2].bytes, static_cast<std::int64_t>(sizeof(SquareSum)));
    return all.size();
  };
  EXPECT_EQ(sums("decoder", "tokens", "cuda"), 3u);
  EXPECT_EQ(sums("encoder", "mlm", "cuda"), 4u);
  EXPECT_EQ(sums("encoder", "mlm", "cpu"), 3u);
}

}  // namespace
}  // namespace tfm
