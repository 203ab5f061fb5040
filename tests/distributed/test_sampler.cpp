// Ranks that share a model, or hold copies of it, continue a text with the same tokens.
#include <gtest/gtest.h>

#include <set>

#include "inference/inference.h"
#include "inference/sampler.h"
#include "job.h"
#include "models/registry.h"

namespace tfm {
namespace {

using test::job;

std::vector<std::int32_t> continued(const comm::Mesh& mesh) {
  config::Config config = config::parse_config(
      "model: {family: decoder, vocab_size: 53, d_model: 32, n_layers: 2, n_heads: 8, d_ff: 32, "
      "init_std: 0.3}\n"
      "data: {train: {type: tokens, path: none.bin}}\n",
      "test",
      {"parallel.tensor=" + std::to_string(mesh.layout[comm::Axis::tensor]),
       "parallel.sequence=false", "train.seq_len=40",
       "train.global_batch_size=" + std::to_string(mesh.layout.size(comm::kData))});
  config::resolve_for_ranks(config, mesh.layout.world());
  const auto model = models::make_model(config, mesh);
  std::vector<double> flat(static_cast<std::size_t>(model->parameters().flat_elements()));
  model->parameters().initialize(3, flat.data(), 1);
  inference::Generation generation(*model, comm::rank_context(device::Device::cpu(1), mesh),
                                   {model->parameters(), flat.data(), DType::f64},
                                   {.sequences = 1, .length = 1, .capacity = 40}, 53);
  inference::Sampler sampler({.temperature = 0.8, .top_k = 20, .top_p = 0.9, .seed = 11});
  std::vector<std::int32_t> ids{1};
  while (ids.size() < 40) {
    generation.step(std::span(&ids.back(), 1));
    ids.push_back(sampler.next(generation.logits()));
  }
  return ids;
}

TEST(Sampler, DrawsTheSameOnAllRanks) {
  const std::vector<std::int32_t> alone = continued(comm::single_mesh());
  for (const comm::Layout& layout : test::layouts())
    EXPECT_EQ(continued(test::mesh_of(layout)), alone) << layout.str();
  EXPECT_GT(std::set(alone.begin(), alone.end()).size(), 5u) << "hardly anything is drawn";
}

}  // namespace
}  // namespace tfm
