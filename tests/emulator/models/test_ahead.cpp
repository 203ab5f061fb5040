// Steps that are launched before the host has read the numbers of the step before: the same bits as
// one after the other.
#include <gtest/gtest.h>

#include "device/cuda/stream.h"
#include "fake_runtime.h"
#include "support/run_ahead.h"

namespace tfm {
namespace {

device::Device device() { return {std::make_shared<cuda::Stream>(0), 1}; }

class Ahead : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { emulator::runtime.late = true; }
};

train::Engine engine_of(const std::string& precision) {
  config::Config c = config::parse_config(
      "model: {family: decoder, vocab_size: 37, d_model: 32, n_layers: 1, n_heads: 2, d_ff: 32, "
      "max_seq_len: 8, tie_embeddings: false, dropout: 0.1}\ndevice: cuda\n"
      "data: {train: {type: tokens, path: none.bin}}\n",
      "test",
      {"train.seq_len=8", "train.global_batch_size=2", "train.micro_batch_size=1",
       "optimizer.ema=0.9", "precision=" + precision});
  config::resolve_for_ranks(c, 1);
  train::Engine e(plan::make_step_plan(c, comm::single_mesh()), device());
  test::initialize_poisoned(e);
  // Doubled behind the second update.
  if (e.loss_scale().dynamic) e.loss_scale() = {1024, optim::LossScale::kInterval - 2, true};
  return e;
}

TEST_P(Ahead, StepsHaveTheBitsOfOneAfterTheOther) {
  const test::PoisonedData data(2, {3, 7, 8});
  std::vector<test::TrainedSteps> both;
  for (const bool ahead : {false, true}) {
    train::Engine e = engine_of(GetParam());
    EXPECT_TRUE(e.runs_ahead());
    both.push_back(test::train_steps(e, data, 11, ahead));
    EXPECT_EQ(e.updates(), 8);
  }
  EXPECT_EQ(both[0].applied, (std::vector<bool>{1, 1, 0, 1, 1, 1, 0, 0, 1, 1, 1}));
  const std::vector<double> of_fp16{1024, 1024, 2048, 1024, 1024, 1024, 1024, 512, 256, 256, 256},
      of_others(11, 1);
  EXPECT_EQ(both[0].loss_scales, GetParam() == std::string("fp16") ? of_fp16 : of_others);
  EXPECT_TRUE(both[0].bits == both[1].bits);
}

TEST_P(Ahead, TheDeviceHasTheNextStepBeforeTheHostHasReadThisOne) {
  train::Engine e = engine_of(GetParam());
  const test::PoisonedData data(2, {});
  data::DataLoader loader = e.training_loader(data);
  for (std::int64_t s = 1; s <= 3; ++s) e.train_step(s, 1e-3, loader.load(s - 1));
  EXPECT_EQ(emulator::waiting(), 0u);
  e.launch(4, 1e-3, loader.load(3));
  const std::size_t one = emulator::waiting();
  EXPECT_GT(one, 0u) << "nothing is done before somebody waits";
  const Batch& next = loader.load(4);
  e.launch(5, 1e-3, next);
  EXPECT_EQ(emulator::waiting(), 2 * one);
  EXPECT_THROW(e.launch(6, 1e-3, next), Error) << "the memory of two steps is in use";
  e.finish();
  EXPECT_EQ(emulator::waiting(), one) << "the host has waited for the first of them alone";
  e.finish();
  EXPECT_EQ(emulator::waiting(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Precisions, Ahead, testing::Values("fp32", "bf16", "fp16"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tfm
