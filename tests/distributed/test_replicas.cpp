// A copy of a tensor that differs from those of other ranks by one bit is found when the next
// checkpoint is due, and that checkpoint is not written.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/host.h"
#include "job.h"
#include "shared_folder.h"
#include "train/engine_state.h"
#include "train/observers.h"
#include "train/replicas.h"

namespace tfm {
namespace {

namespace fs = std::filesystem;
using test::job;

config::Config config_of(const comm::Layout& layout, const std::string& folder,
                         std::vector<std::string> overrides) {
  overrides.insert(overrides.end(),
                   {"parallel.tensor=" + std::to_string(layout[comm::Axis::tensor]),
                    "train.global_batch_size=" + std::to_string(2 * layout.size(comm::kData)),
                    "data.train.path=" + folder + "/text.txt", "checkpoint.dir=" + folder + "/ck"});
  config::Config config = config::parse_config(
      "model: {family: decoder, vocab_size: 256, d_model: 64, n_layers: 1, n_heads: 8, d_ff: 32, "
      "norm: layernorm}\n"
      "train: {seq_len: 16, steps: 100}\n"
      "data: {train: {type: text, path: none}, tokenizer: bytes}\n",
      "test", overrides);
  config::resolve_for_ranks(config, job().size());
  return config;
}

const std::vector<std::vector<std::string>> kRuns{
    {"precision=fp32"},
    {"precision=bf16", "optimizer.ema=0.9"},
    {"precision=fp32", "parallel.zero=1"},
    {"precision=bf16", "parallel.zero=1", "parallel.sequence=false"},
};

std::string message_of(train::Engine& engine) {
  try {
    train::check_replicas(engine, "step 1");
    return "";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::retryable);
    return e.what();
  }
}

// Every tensor of which there are copies, in turn, on every layout: a bit of the last rank's.
TEST(Replicas, OneBitIsFoundAndNamed) {
  if (job().size() == 1) return;
  const int last = job().size() - 1;
  const std::string who = "rank " + std::to_string(last) + " (" + host_name() + ")";
  for (const comm::Layout& layout : test::layouts())
    for (const auto& overrides : kRuns) {
      const comm::Mesh mesh = test::mesh_of(layout);
      const test::SharedFolder folder(mesh);
      train::TrainingRun run(config_of(layout, folder.path(), overrides), mesh,
                             device::Device::cpu(1));
      run.engine.initialize_parameters();
      data::DataLoader loader = run.engine.training_loader(*run.data.train);
      for (std::int64_t s = 1; s <= 2; ++s) run.engine.train_step(s, 1e-3, loader.load(s - 1));
      EXPECT_EQ(message_of(run.engine), "") << "training keeps copies equal";
      int found = 0;
      for (const train::ReplicatedTensor& t : train::replicated_tensors(run.engine)) {
        int copies = 0;
        copies = mesh.layout.size(t.copies);
        std::byte* bit = nullptr;
        if (!t.memory.empty() && !t.memory.back().empty())
          bit = const_cast<std::byte*>(&t.memory.back().back());
        std::int64_t has = bit ? 1 : 0;
        mesh.world().broadcast({&has, DType::i64, {1}}, last);
        if (!has) continue;
        const auto flip = [&] {
          if (mesh.rank() == last) *bit ^= std::byte{1};
        };
        flip();
        const std::string message = message_of(run.engine);
        flip();
        if (copies == 1) {
          EXPECT_EQ(message, "") << t.name;
          continue;
        }
        ++found;
        EXPECT_NE(message.find("step 1: replicas of " + t.name + " differ: "), message.npos)
            << t.name << ": " << message;
        EXPECT_NE(message.find(who), message.npos) << message;
        if (copies > 2) {
          EXPECT_NE(message.find(who + " differs from " + std::to_string(copies - 1) + " ranks"),
                    message.npos)
              << message;
        }
        EXPECT_EQ(message.find("more tensors"), message.npos) << message;
      }
      // Data ranks have shares under ZeRO, and so have tensor ranks with sequence parallelism.
      const config::ParallelConfig& p = run.config.parallel;
      EXPECT_GE(found, p.zero == 0 ? 6 : p.tensor > 1 && !p.sequence ? 1 : 0) << layout.str();
    }
}

TEST(Replicas, ACheckpointOfDifferentCopiesIsNotWritten) {
  if (job().size() == 1) return;
  for (const comm::Layout& layout : test::layouts()) {
    const comm::Mesh mesh = test::mesh_of(layout);
    const test::SharedFolder folder(mesh);
    train::TrainingRun run(config_of(layout, folder.path(), {"checkpoint.every=1"}), mesh,
                           device::Device::cpu(1));
    run.engine.initialize_parameters();
    data::DataLoader loader = run.engine.training_loader(*run.data.train);
    const auto writer = train::write_checkpoints(run);
    const auto step = [&] {
      ++run.step;
      run.engine.train_step(run.step, 1e-3, loader.load(run.step - 1));
      writer->after_step(run);
    };
    const auto latest = [&] {
      mesh.world().barrier();
      std::string name;
      std::ifstream(folder.path() + "/ck/latest") >> name;
      return name;
    };
    step();
    step();
    EXPECT_EQ(latest(), "step-00000002");
    int changed = 0;
    for (const train::ReplicatedTensor& t : train::replicated_tensors(run.engine))
      if (t.name.ends_with("layers.0.ffn_norm.weight") && !t.name.starts_with("adam") && ++changed)
        if (mesh.rank() == 0) *const_cast<std::byte*>(t.memory[0].data() + 1) ^= std::byte{4};
    ASSERT_EQ(changed, 1);
    try {
      step();
      ADD_FAILURE() << "not found";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::retryable);
      EXPECT_NE(std::string(e.what()).find("step 3: replicas of"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("rank 0 ("), std::string::npos) << e.what();
    }
    EXPECT_EQ(latest(), "step-00000002");
    EXPECT_FALSE(fs::exists(folder.path() + "/ck/step-00000003"));
    EXPECT_FALSE(fs::exists(folder.path() + "/ck/step-00000003.tmp"));
    EXPECT_EQ(checkpoint::find_latest(folder.path() + "/ck", [](const std::string&) {}),
              folder.path() + "/ck/step-00000002");
  }
}

}  // namespace
}  // namespace tfm
