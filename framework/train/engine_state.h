#pragma once
// An engine's parameters and optimizer state as pieces of one logical checkpoint:
// "model/<part>", "ema/<part>" where there is an average of the weights, and the states of the
// optimizer's rule, such as "adam.m/<part>" and "adam.v/<part>".
#include "checkpoint/checkpoint.h"
#include "train/engine.h"

namespace tfm::train {

// The pieces that this rank writes; over all ranks they cover every tensor once. The engine must
// not change while they are written.
std::vector<checkpoint::Chunk> checkpoint_chunks(Engine& engine);

// A tensor of which several ranks hold the same bytes. Every rank has the same list of them.
struct ReplicatedTensor {
  std::string name;                                // of a parameter, or as in checkpoint_chunks()
  comm::AxisSet copies;                            // axes along which ranks hold the same elements
  std::vector<std::span<const std::byte>> memory;  // this rank's copy, in device memory
};
std::vector<ReplicatedTensor> replicated_tensors(const Engine& engine);

// Collective: restores the parameters and, if `optimizer`, the optimizer state with the number of
// updates; that of an import stays as it is. Error(input) names the tensor if the checkpoint is of
// another model.
void restore(const checkpoint::CheckpointReader& reader, const std::string& path, Engine& engine,
             bool optimizer);

// Error(input) as of restore(), from the headers alone: `whole` are the parameters of one rank.
void check_restorable(const checkpoint::CheckpointReader& reader, const std::string& path,
                      const nn::ParameterSet& whole, const optim::Rule& rule);

}  // namespace tfm::train
