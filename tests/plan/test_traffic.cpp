// Bytes that ranks exchange against the formulas of the literature.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "models/registry.h"
#include "plan/device_model.h"
#include "plan/rank_plans.h"
#include "plan/traffic.h"

namespace tfm {
namespace {

// A plain decoder whose parameters fill whole blocks: P = 2 (12 d^2 + 13 d) + (64 + 16) d + 2 d.
constexpr double kWidth = 128, kLayers = 2, kRows = 2 * 16;  // rows: of a micro-batch
constexpr double kParameters =
    kLayers * (12 * kWidth * kWidth + 13 * kWidth) + (64 + 16) * kWidth + 2 * kWidth;

plan::StepPlan plan_of(int ranks, std::vector<std::string> overrides,
                       const std::string& model =
                           "vocab_size: 64, d_model: 128, n_layers: 2, "
                           "n_heads: 4, max_seq_len: 16",
                       std::string data = "") {
  overrides.insert(overrides.begin(), {"train.seq_len=16", "train.global_batch_size=16"});
  if (data.empty())
    data = model.find("encoder") == std::string::npos
               ? "type: tokens, path: none.bin"
               : "type: pairs, source: none.a, target: none.b";
  config::Config c = config::parse_config(
      "model: {" +
          std::string(model.find("family") == std::string::npos ? "family: decoder, " : "") +
          model + "}\ndata: {train: {" + data + "}}\n",
      "test", overrides);
  config::resolve_for_ranks(c, ranks);
  return plan::plan_of_fullest(c);
}

double differences(const plan::TextbookTraffic& t) {
  double sum = 0;
  for (const auto& d : t.differences) sum += d.bytes;
  return sum;
}
double difference(const plan::TextbookTraffic& t, const std::string& word) {
  for (const auto& d : t.differences)
    if (d.why.find(word) != std::string::npos) return d.bytes;
  return 0;
}

TEST(Traffic, OfDataParallelRanksIsTwoParameters) {
  for (const char* precision : {"fp32", "bf16"}) {
    const double own = precision == std::string("fp32") ? 4 : 2;
    for (const char* zero : {"0", "1"}) {
      const plan::StepPlan p =
          plan_of(4, {"train.micro_batch_size=2", std::string("parallel.zero=") + zero,
                      std::string("precision=") + precision});
      const auto all = plan::textbook_traffic(p);
      ASSERT_EQ(all.size(), 1u);
      EXPECT_EQ(all[0].axes, "data");
      const double expected = kParameters * (zero == std::string("0") ? 2 * 4 : 4 + own) * 3 / 4;
      EXPECT_DOUBLE_EQ(all[0].textbook, expected);
      // Two counts of labels and losses, and the norm, over the same four ranks.
      const double scalars = 2 * 3.0 / 4 * (8 + 8 + sizeof(SquareSum));
      EXPECT_DOUBLE_EQ(all[0].sent, expected + scalars);
      EXPECT_NEAR(differences(all[0]), scalars, 1e-6);
    }
  }
}

// Several buckets, of which each of three ranks has a third.
TEST(Traffic, OfThreeRanksIsThatOfTheirShares) {
  const plan::StepPlan p = plan_of(3, {"train.global_batch_size=12", "train.micro_batch_size=2",
                                       "parallel.zero=1", "parallel.bucket_bytes=20000"});
  ASSERT_GT(p.buckets().size(), 3u);
  const auto all = plan::textbook_traffic(p);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_NEAR(all[0].textbook / (kParameters * (4 + 4) * 2 / 3), 1, 0.01);
}

TEST(Traffic, OfALayerIsFourAllReduces) {
  for (const char* sequence : {"false", "true"}) {
    const plan::StepPlan p = plan_of(2, {"parallel.tensor=2", "train.micro_batch_size=2",
                                         std::string("parallel.sequence=") + sequence});
    const auto all = plan::textbook_traffic(p);
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(all[0].axes, "tensor");
    const double all_reduce = 2 * 0.5 * kRows * kWidth * 4;  // of the rows of a micro-batch
    EXPECT_DOUBLE_EQ(all[0].textbook, 8 * kLayers * 4 * all_reduce);
    // Beside them: the embedding forward, the head backward, and four numbers of each row and rank
    // for the softmax.
    const bool shards = sequence == std::string("true");
    EXPECT_DOUBLE_EQ(difference(all[0], "embedding"), 8 * all_reduce);
    EXPECT_DOUBLE_EQ(difference(all[0], "head"), 8 * all_reduce);
    EXPECT_DOUBLE_EQ(difference(all[0], "softmax"), 8 * 0.5 * 2 * 4 * kRows * 4);
    EXPECT_DOUBLE_EQ(difference(all[0], "the norm"), 2 * 0.5 * sizeof(SquareSum));
    // Gains and biases of the norms, biases of the outputs, and the table of positions.
    const double replicated = kLayers * (4 + 2) * kWidth + 2 * kWidth + 16 * kWidth;
    EXPECT_DOUBLE_EQ(difference(all[0], "norms, biases"), shards ? 2 * 0.5 * 4 * replicated : 0);
    EXPECT_EQ(all[0].differences.size(), shards ? 5u : 4u);
    EXPECT_NEAR(all[0].sent, all[0].textbook + differences(all[0]), 1e-6);
  }
}

// Two layers of the encoder's rows and two of the decoder's, of other lengths.
TEST(Traffic, OfALayerIsOfTheRowsOfItsStack) {
  const plan::StepPlan p =
      plan_of(2,
              {"parallel.tensor=2", "train.micro_batch_size=2", "parallel.sequence=false",
               "train.seq_len=64"},
              "family: encoder_decoder, vocab_size: 300, d_model: 64, n_layers: 2, n_heads: 4, "
              "max_seq_len: 64",
              "type: span_corruption, path: none.bin");
  const nn::BatchShape& shape = p.largest().shape;
  ASSERT_NE(shape.source_length, shape.length);
  const auto rows = static_cast<double>(2 * 2 * (shape.source_length + shape.length));
  const auto all = plan::textbook_traffic(p);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_DOUBLE_EQ(all[0].textbook, 8 * 4 * 2 * 0.5 * rows * 64 * 4);
}

TEST(Traffic, DifferencesHaveReasons) {
  const plan::StepPlan again =
      plan_of(2, {"parallel.tensor=2", "train.micro_batch_size=2", "recompute=full"});
  EXPECT_GT(difference(plan::textbook_traffic(again)[0], "recompute"), 0);
  const plan::StepPlan both = plan_of(8, {"parallel.tensor=2", "parallel.zero=1"});
  EXPECT_GT(difference(plan::textbook_traffic(both)[0], "sequence parallelism"), 0);
  const plan::StepPlan whole = plan_of(4, {"parallel.zero=3", "train.micro_batch_size=4"});
  EXPECT_LT(difference(plan::textbook_traffic(whole)[0], "gathered once"), 0);
  const plan::StepPlan replicas =
      plan_of(4, {"parallel.zero=1", "parallel.replicas=2", "precision=bf16"});
  EXPECT_NE(difference(plan::textbook_traffic(replicas)[0], "replicas"), 0);
  const plan::StepPlan odd = plan_of(4, {}, "vocab_size: 63, d_model: 24, n_layers: 1, n_heads: 2");
  EXPECT_GT(difference(plan::textbook_traffic(odd)[0], "padded"), 0);
  const plan::StepPlan muon = plan_of(4, {"parallel.zero=1", "optimizer.type=muon", "device=cpu"});
  EXPECT_GT(difference(plan::textbook_traffic(muon)[0], "optimizer"), 0);
}

TEST(Traffic, NothingIsLeftOut) {
  const std::string pairs =
      "family: encoder_decoder, vocab_size: 64, d_model: 64, n_layers: 2, n_heads: 4";
  const std::string classifier =
      "vocab_size: 260, d_model: 64, n_layers: 2, n_heads: 4, "
      "heads: [{type: classify, classes: 3, pool: mean}]";
  for (const auto& p :
       {plan_of(8, {"parallel.tensor=2", "parallel.zero=1", "recompute=full", "precision=bf16"}),
        plan_of(8, {"parallel.tensor=4", "recompute=selective", "parallel.sequence=false"}),
        plan_of(8, {"parallel.tensor=2", "parallel.zero=2"}),
        plan_of(8, {"parallel.tensor=2", "parallel.zero=3", "precision=bf16"}),
        plan_of(4, {"parallel.pipeline=2", "parallel.zero=3"}),
        plan_of(8, {"parallel.zero=3", "parallel.replicas=2", "train.micro_batch_size=1"}),
        plan_of(8, {"parallel.zero=1", "parallel.replicas=4"}),
        plan_of(8, {"parallel.tensor=2", "optimizer.type=muon", "device=cpu"}),
        plan_of(8, {"parallel.tensor=2", "recompute=full"}, pairs),
        plan_of(4, {"parallel.tensor=4"}, pairs),
        plan_of(4, {"parallel.tensor=2", "parallel.context=2", "data.train.type=labelled"},
                classifier)}) {
    for (const comm::CollectiveCall& c : p.collectives())
      EXPECT_TRUE(c.purpose != comm::Purpose::none || p.config.model.translates())
          << comm::name_of(c.kind) << " over " << comm::name_of(c.axes);
    double counted = 0, listed = 0, compared = 0;
    for (const comm::CollectiveCall& c : p.collectives())
      counted += plan::ring_bytes(c, p.mesh.layout);
    for (const plan::Traffic& t : plan::traffic(p)) listed += t.sent;
    for (const plan::TextbookTraffic& t : plan::textbook_traffic(p)) {
      compared += t.sent;
      EXPECT_NEAR(t.sent, t.textbook + differences(t), 1e-6 * t.sent) << t.axes;
      EXPECT_TRUE(std::ranges::none_of(t.differences, [](const auto& d) {
        return d.why == "other";
      })) << t.axes;
    }
    EXPECT_DOUBLE_EQ(listed, counted);
    EXPECT_DOUBLE_EQ(compared, counted);
  }
}

}  // namespace
}  // namespace tfm
