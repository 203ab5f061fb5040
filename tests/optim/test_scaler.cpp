// Loss scaling, clipping and AdamW in fp16 against PyTorch: tests/fixtures/make_fp16_scaler.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/half.h"
#include "optim/loss_scale.h"
#include "support/model_fixture.h"

namespace tfm {
namespace {

using test::Fixture;

// 65536, doubled after every 2000 updates, halved by a skipped step, after which counting starts
// anew.
TEST(LossScale, GrowsAgainAfterEachInterval) {
  optim::LossScale scale = optim::LossScale::of_fp16();
  const auto after = [&](int updates) {
    for (int i = 0; i < updates; ++i) scale.update(true);
    return scale.value;
  };
  EXPECT_EQ(after(1999), 65536);
  EXPECT_EQ(after(1), 131072);
  EXPECT_EQ(after(1999), 131072);
  EXPECT_EQ(after(1), 262144);
  EXPECT_EQ(after(1500), 262144);
  scale.update(false);
  EXPECT_EQ(scale.value, 131072);
  EXPECT_EQ(after(1999), 131072);
  EXPECT_EQ(after(1), 262144);
}

TEST(LossScale, SkipsScalesAndUpdatesAsPyTorchDoes) {
  const Fixture f("fp16_scaler");
  train::Engine engine(plan::make_step_plan(f.config(), comm::single_mesh()), 1);
  const nn::ParameterSet& parameters = engine.model().parameters();
  const optim::Optimizer& optimizer = engine.optimizer();
  const optim::FlatBuffers& flat = engine.flat();
  device::Device device = device::Device::cpu(1);
  engine.set_weights(
      [&](const nn::PartSlice& p, std::int64_t first, std::int64_t count, void* out) {
        nn::ParameterSet::scatter(p, first, count, f.get<float>("initial." + p.name).data(),
                                  static_cast<float*>(out));
      });
  std::map<std::string, std::vector<float>> gradients;
  for (const nn::PartSlice& p : parameters.slices())
    gradients[p.name] = f.get<float>("gradient." + p.name);
  const auto lrs = f.get<double>("lrs"), scales = f.get<double>("scales"),
             norms = f.get<double>("norms");
  const auto applied = f.get<std::int64_t>("applied");
  ASSERT_EQ(applied.size(), 20u);
  ASSERT_EQ(std::ranges::count(applied, 0), 4);

  optim::LossScale scale = optim::LossScale::of_fp16();
  scale.updates = f.get<std::int64_t>("previous")[0];
  std::int64_t updates = 0;
  for (std::size_t s = 0; s < applied.size(); ++s) {
    SCOPED_TRACE("step " + std::to_string(s + 1));
    EXPECT_EQ(scale.value, scales[s]);
    std::fill_n(static_cast<float*>(flat.gradients), parameters.flat_elements(), 0.0f);
    for (const nn::PartSlice& p : parameters.slices())
      nn::ParameterSet::scatter(p, gradients[p.name].data() + s * p.elements(),
                                static_cast<float*>(flat.gradients));
    const StepNumbers numbers{.loss_scale = scale.value,
                              .step = static_cast<std::uint32_t>(s + 1),
                              .update = optimizer.numbers(updates + 1, lrs[s])};
    StepOutcome outcome;
    optimizer.measure(device.stream(), flat, &numbers, &outcome);
    optimizer.update(device.stream(), flat, &numbers, &outcome);
    EXPECT_EQ(outcome.applied, applied[s]);
    if (outcome.applied) {
      EXPECT_NEAR(outcome.norm, norms[s], 1e-6 * norms[s]);
    }
    scale.update(outcome.applied != 0);
    updates += outcome.applied;
  }
  const auto* master = static_cast<const float*>(flat.master);
  const auto* half = static_cast<const f16*>(flat.parameters);
  for (const nn::PartSlice& p : parameters.slices()) {
    const auto initial = f.get<float>("initial." + p.name), last = f.get<float>("final." + p.name);
    std::size_t moved = 0;
    for (std::size_t i = 0; i < last.size(); ++i) {
      const auto at = static_cast<std::size_t>(p.offset) + i;
      EXPECT_NEAR(master[at], last[i], 1e-6) << p.name << " element " << i;
      moved += std::abs(last[i] - initial[i]) > 1e-3f;
      EXPECT_EQ(half[at].bits, f16(master[at]).bits);
    }
    EXPECT_GT(moved, last.size() / 2) << p.name;
  }
}

}  // namespace
}  // namespace tfm
