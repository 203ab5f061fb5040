#pragma once
// A model from a checkpoint directory: what generation and verification start from.
#include "checkpoint/checkpoint.h"
#include "config/config.h"
#include "inference/inference.h"

namespace tfm::inference {

struct LoadedModel {
  config::Config config;
  comm::RankContext rank_context;
  std::unique_ptr<nn::Model> model;
  std::shared_ptr<std::byte> memory;  // of the device
  float* flat() const {
    return reinterpret_cast<float*>(memory.get());
  }  // parameters, laid out by model->parameters()
  Weights weights() const { return {model->parameters(), flat()}; }
};

// The run configuration assumed for a Hugging Face directory: its model, its tokenizer, no data.
config::Config huggingface_run(const std::string& dir);

// `path`: a Hugging Face directory, one checkpoint (step-00000500) or a directory of them, of which
// the newest valid one is taken. The configuration comes from there, changed by `overrides`.
// Error(input) where the checkpoint is damaged.
std::string checkpoint_path(const std::string& path, checkpoint::Verification verification =
                                                         checkpoint::Verification::checksums);
config::Config checkpoint_config(const std::string& step_dir,
                                 const std::vector<std::string>& overrides);
// The same for a model that is only read: all `ranks` split it where the overrides name no
// parallel.tensor.
config::Config inference_config(const std::string& step_dir,
                                const std::vector<std::string>& overrides, int ranks);
LoadedModel load_model(const std::string& step_dir, const config::Config& config,
                       comm::RankContext rank_context);

}  // namespace tfm::inference
