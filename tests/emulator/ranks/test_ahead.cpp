// Steps launched before the one before them is finished, on several ranks: the bits of one after
// the other, also where a gradient that is not finite is seen by one rank alone.
#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "../../distributed/job.h"
#include "../../distributed/shared_folder.h"
#include "ahead_engine.h"
#include "find_device.h"
#include "support/data_files.h"
#include "support/run_ahead.h"
#include "train/trainer.h"

namespace tfm {
namespace {

using test::job;

struct AheadCase {
  comm::Layout layout;
  std::string precision;
  int zero;
};

std::vector<AheadCase> ahead_cases() {
  std::vector<AheadCase> all;
  for (const comm::Layout& layout : test::layouts()) all.push_back({layout, "fp32", 0});
  all.push_back({test::layouts().back(), "bf16", 3});
  all.push_back({test::layouts().back(), "fp16", 1});
  if (job().size() > 1) {
    const comm::Layout stages(comm::Layout::Sizes{.data = job().size() / 2, .pipeline = 2});
    all.push_back({stages, "fp32", 1});
  }
  return all;
}

train::Engine engine(const AheadCase& c, const std::string& backend) {
  return test::poisoned_engine(comm::make_mesh(job(), c.layout), c.precision, c.zero, backend);
}

TEST(AheadOnRanks, StepsHaveTheBitsOfOneAfterTheOther) {
  test::find_device();
  const test::PoisonedData data(4, {2, 4});
  for (const AheadCase& c : ahead_cases()) {
    SCOPED_TRACE(c.layout.str() + " " + c.precision + " ZeRO " + std::to_string(c.zero));
    train::Engine one_by_one = engine(c, "nccl"), ahead = engine(c, "nccl");
    EXPECT_TRUE(ahead.runs_ahead());
    const test::TrainedSteps want = test::train_steps(one_by_one, data, 5, false);
    int under_way = 0;
    const test::TrainedSteps got = test::train_steps(ahead, data, 5, true, [&] {
      under_way += emulator::waiting(std::get<cuda::Stream*>(ahead.device().stream())->get()) > 0;
    });
    EXPECT_EQ(under_way, 4);
    EXPECT_EQ(want.applied, (std::vector<bool>{1, 0, 1, 0, 1}));
    EXPECT_EQ(got.loss_scales, want.loss_scales);
    EXPECT_TRUE(got.bits == want.bits);
  }
}

TEST(AheadOnRanks, NotWhereTensorsPassThroughTheHost) {
  test::find_device();
  for (const AheadCase& c : ahead_cases()) {
    train::Engine e = engine(c, "mpi");
    EXPECT_EQ(e.runs_ahead(), job().size() == 1) << c.layout.str();
  }
}

// A run of the trainer on all ranks, in `folder`; at its fifth wait rank `asks` gets SIGUSR1. Of
// its metrics, on rank 0: figures of its steps, and the steps that have checkpoints.
std::map<std::string, std::vector<nlohmann::json>> trained(
    const comm::Mesh& mesh, const std::string& text, const std::string& folder,
    const std::vector<std::string>& overrides, int asks = -1) {
  std::vector<std::string> all{"data.train.path=" + text, "checkpoint.dir=" + folder,
                               "metrics.jsonl=" + folder + ".jsonl"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  config::Config c = config::parse_config(
      "model: {family: decoder, vocab_size: 256, d_model: 16, n_layers: 1, n_heads: 2, d_ff: 16, "
      "max_seq_len: 8}\ntrain: {steps: 10, seq_len: 8, global_batch_size: 4}\ndevice: cuda\n"
      "data: {train: {type: text, path: a}, tokenizer: bytes}\nparallel: {backend: nccl, zero: 1}"
      "\ncheckpoint: {keep: 20}\nmetrics: {log_every: 1}\n",
      "test", all);
  config::resolve_for_ranks(c, job().size());
  train::StopRequests requests;
  const pthread_t self = ::pthread_self();
  int waits = 0;
  emulator::runtime.on_wait = [&] {
    if (++waits == 5 && mesh.rank() == asks) ::pthread_kill(self, SIGUSR1);
  };
  train::train(c, mesh, device::Device::gpu(0, 1), requests);
  emulator::runtime.on_wait = {};
  std::map<std::string, std::vector<nlohmann::json>> events;
  std::ifstream in(mesh.rank() == 0 ? folder + ".jsonl" : "");
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json j = nlohmann::json::parse(line);
    if (j["event"] == "step")
      events["step"].push_back({j["step"], j["loss"], j["grad_norm"], j["lr"]});
    if (j["event"] == "checkpoint") events["checkpoint"].push_back(j["step"]);
  }
  return events;
}

TEST(AheadOnRanks, ARequestOfOneRankIsObeyedByAll) {
  test::find_device();
  const comm::Mesh mesh =
      comm::make_mesh(job(), comm::Layout(comm::Layout::Sizes{.data = job().size()}));
  const test::SharedFolder folder(mesh);
  const std::string text = folder.path() + "/text.txt", whole = folder.path() + "/whole";
  auto want = trained(mesh, text, whole, {"checkpoint.every=1"});
  for (const int asks : std::set{0, job().size() - 1}) {
    const std::string asked = folder.path() + "/asked" + std::to_string(asks);
    auto got = trained(mesh, text, asked, {"checkpoint.every=0"}, asks);
    if (mesh.rank() > 0) continue;
    EXPECT_EQ(got["step"], want["step"]);
    ASSERT_EQ(got["checkpoint"].size(), 2u);
    const int step = got["checkpoint"][0];
    EXPECT_GT(step, 1);
    EXPECT_LT(step, 10);
    const std::string name = "/step-0000000" + std::to_string(step);
    EXPECT_FALSE(test::checkpoint_bytes(asked + name).empty());
    EXPECT_TRUE(test::checkpoint_bytes(asked + name) == test::checkpoint_bytes(whole + name));
  }
}

}  // namespace
}  // namespace tfm
