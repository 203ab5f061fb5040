#include <gtest/gtest.h>

#include "models/stages.h"

namespace tfm {
namespace {

models::Stages stages_of(int layers, int ranks, int of_rank,
                         const std::string& layers_per_stage = "auto") {
  const config::Config c = config::parse_config(
      "model: {family: decoder, vocab_size: 32000, d_model: 512, n_heads: 8}\n"
      "data: {train: {type: tokens, path: none.bin}}\n",
      "test",
      {"model.n_layers=" + std::to_string(layers), "parallel.pipeline=" + std::to_string(ranks),
       of_rank > 1 ? "parallel.schedule=interleaved" : "parallel.schedule=1f1b",
       "parallel.virtual_stages=" + std::to_string(of_rank), "train.seq_len=512",
       "parallel.layers_per_stage=" + layers_per_stage});
  return {c, comm::Mesh(comm::Layout({.pipeline = ranks}))};
}

TEST(Stages, FollowEachOtherAndHaveBlocks) {
  for (const int ranks : {1, 2, 3, 4})
    for (const int of_rank : {1, 2, 4})
      for (int layers = ranks * of_rank; layers < 30; layers += 3) {
        if (ranks == 1 && of_rank > 1) continue;
        const models::Stages s = stages_of(layers, ranks, of_rank);
        EXPECT_EQ(s.of(0), 0);
        EXPECT_EQ(s.count(), ranks * of_rank);
        for (int b = 1; b < layers; ++b) EXPECT_LE((s.of(b) - s.of(b - 1)) & ~1, 0) << layers;
      }
}

TEST(Stages, AreAsGiven) {
  using Layers = std::vector<std::int64_t>;
  EXPECT_EQ(stages_of(9, 3, 1, "[6, 1, 2]").blocks_per_stage(), (Layers{6, 1, 2}));
  const models::Stages s = stages_of(7, 2, 2, "[1, 3, 2, 1]");
  EXPECT_EQ(s.blocks_per_stage(), (Layers{1, 3, 2, 1}));
  const std::vector<int> ranks{0, 1, 1, 1, 0, 0, 1};
  for (int b = 0; b < 7; ++b) EXPECT_EQ(s.rank_of_block(b), ranks[static_cast<std::size_t>(b)]);
}

// The head costs as much as 3.9 blocks here.
TEST(Stages, OfARankCostAsMuchAsThoseOfAnother) {
  for (const int layers : {24, 32, 48})
    for (const int of_rank : {1, 2, 3}) {
      const models::Stages s = stages_of(layers, 4, of_rank);
      std::vector<double> blocks(4);
      for (int b = 0; b < layers; ++b) ++blocks[static_cast<std::size_t>(s.rank_of_block(b))];
      blocks[static_cast<std::size_t>(s.last_rank())] += 3.9;
      const double mean = (layers + 3.9) / 4;
      for (const double n : blocks)
        EXPECT_LT(n, mean + 1.5) << layers << " layers, " << of_rank << " stages on each rank";
    }
}

}  // namespace
}  // namespace tfm
