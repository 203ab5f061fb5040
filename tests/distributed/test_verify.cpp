// compare() finds what goes wrong on one rank, and all ranks hear of it.
#include <gtest/gtest.h>

#include "job.h"
#include "verify/layout.h"

namespace tfm {
namespace {

using test::job;
using verify::Trace;

std::map<std::string, std::string> found(const comm::Layout& layout,
                                         const std::function<void(Trace&)>& on_last_rank) {
  config::Config config = config::parse_config(
      "model: {family: decoder, vocab_size: 31, d_model: 64, n_layers: 1, n_heads: 8, d_ff: 16}\n"
      "data: {train: {type: tokens, path: none.bin}}\n",
      "test",
      {"parallel.tensor=" + std::to_string(layout[comm::Axis::tensor]), "train.seq_len=8",
       "train.global_batch_size=" + std::to_string(layout.size(comm::kData))});
  config::resolve_for_ranks(config, job().size());
  const comm::Mesh mesh = test::mesh_of(layout);
  verify::LayoutTraces traces = verify::trace_layout(config, mesh, device::Device::cpu(1));
  if (job().rank() == job().size() - 1) on_last_rank(traces.layout);
  std::map<std::string, std::string> wrong;
  for (const verify::Finding& f : verify::compare(config, mesh, traces))
    if (!f.ok()) wrong[f.check] = f.worst;
  return wrong;
}

TEST(VerifyLayout, FindsWhatOneRankHasWrong) {
  if (job().size() == 1) return;
  for (const comm::Layout& layout : test::layouts()) {
    EXPECT_TRUE(found(layout, [](Trace&) {}).empty());
    const auto initial = found(layout, [](Trace& t) { t.initial[0].front() += 1e-14; });
    EXPECT_EQ(initial.size(), 1u);
    EXPECT_EQ(initial.count("initial weights"), 1u);
    const auto loss = found(layout, [](Trace& t) { t.losses[4] *= 1 + 1e-7; });
    EXPECT_EQ(loss.count("losses of 5 steps"), 1u);
    // A copy that differs in its last bits is within the bound of the sums, but is no copy.
    const auto copies = found(layout, [](Trace& t) {
      for (double& x : t.parameters.back()) x += 1e-13;
    });
    EXPECT_EQ(copies.size(), 1u);
    EXPECT_EQ(copies.count("replicas on all ranks"), 1u);
  }
}

}  // namespace
}  // namespace tfm
