#pragma once
// A model loaded from a checkpoint or a Hugging Face directory, for generation and verification.
#include "checkpoint/checkpoint.h"
#include "comm/watchdog.h"
#include "config/config.h"
#include "inference/inference.h"

namespace tfm::inference {

struct LoadedModel {
  config::Config config;
  comm::RankContext rank_context;
  std::unique_ptr<nn::Model> model;
  std::shared_ptr<std::byte> memory;         // device memory
  std::unique_ptr<comm::Watchdog> watchdog;  // of the mesh
  // Parameters, laid out by model->parameters().
  float* flat() const { return reinterpret_cast<float*>(memory.get()); }
  Weights weights() const { return {model->parameters(), flat()}; }
};

// The run configuration assumed for a Hugging Face directory: its model, its tokenizer, no data.
config::Config huggingface_run(const std::string& dir);

// `path` itself for a Hugging Face directory or one checkpoint (step-00000500); for a directory of
// checkpoints, or of a run (with a folder checkpoints/), the newest one that verifies. Error(input)
// if there is none.
std::string checkpoint_path(const std::string& path, checkpoint::Verification verification);
// Collective: rank 0's checkpoint_path(), after it has verified the checksums of a checkpoint, even
// one that `path` names directly; says which one that is of a run's folder. Error(input) on every
// rank names the damaged file.
std::string verified_path(const std::string& path, comm::Communicator& world);

// The configuration of a checkpoint or a Hugging Face directory with `overrides`. Device, precision
// and layout are those for inference, not those of the training run. Error(usage) if an override
// changes the model.
config::Config checkpoint_config(const std::string& step_dir,
                                 const std::vector<std::string>& overrides);
// The same for a model that is only read: as many of the ranks as can share its heads split it by
// tensor parallelism unless the overrides name parallel.tensor; the others are data ranks.
config::Config inference_config(const std::string& step_dir,
                                const std::vector<std::string>& overrides, int ranks);
// Collective. `step_dir`: from verified_path(). From here on the job ends where ranks wait for each
// other for longer than config.parallel.longest_wait().
LoadedModel load_model(const std::string& step_dir, const config::Config& config,
                       comm::RankContext rank_context);

}  // namespace tfm::inference
