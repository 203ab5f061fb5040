#pragma once
// A small model on the ranks of a job, for steps launched before the one before them is finished.
#include <string>

#include "../../distributed/job.h"
#include "support/run_ahead.h"

namespace tfm::test {

inline train::Engine poisoned_engine(const comm::Mesh& mesh, const std::string& precision, int zero,
                                     const std::string& backend) {
  config::Config config = config::parse_config(
      "model: {family: decoder, d_model: 16, n_layers: 2, n_heads: 4, d_ff: 16, vocab_size: 37, "
      "max_seq_len: 8, tie_embeddings: false, dropout: 0.2}\ndevice: cuda\n"
      "data: {train: {type: tokens, path: none.bin}}\n",
      "test",
      {"train.seq_len=8", "train.global_batch_size=4", "train.micro_batch_size=1",
       "precision=" + precision, "optimizer.ema=0.9",
       "parallel.tensor=" + std::to_string(mesh.layout[comm::Axis::tensor]),
       "parallel.pipeline=" + std::to_string(mesh.layout[comm::Axis::pipeline]),
       "parallel.zero=" + std::to_string(zero), "parallel.bucket_bytes=4Ki",
       "parallel.backend=" + backend});
  config::resolve_for_ranks(config, job().size());
  train::Engine e(plan::make_step_plan(config, mesh), device::Device::gpu(0, 1));
  initialize_poisoned(e);
  if (e.loss_scale().dynamic) e.loss_scale() = {1024, optim::LossScale::kInterval - 1, true};
  return e;
}

}  // namespace tfm::test
