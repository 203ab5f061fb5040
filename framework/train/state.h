#pragma once
// An engine's parameters and optimizer state as pieces of one logical checkpoint:
// "model/<part>", "ema/<part>" where there is an average of the weights, and "adam.m/<part>", "adam.v/<part>" (Adam) or "momentum/<part>" (SGD).
#include "train/checkpoint.h"
#include "train/engine.h"

namespace tfm {

// The pieces this rank writes; over all ranks they cover every tensor once.
std::vector<Piece> checkpoint_pieces(Engine& engine);

// Restores parameters, and optimizer state if `optimizer`. Error(input) names the tensor where the checkpoint is of another model.
void restore(const CheckpointReader& reader, const std::string& path, Engine& engine, bool optimizer);

// Parameters alone into a flat buffer laid out by `parameters` (f32).
// `prefix`: "model/" for the weights, "ema/" for their average.
void restore_parameters(const CheckpointReader& reader, const std::string& path, const ParameterSet& parameters, float* flat,
                        const std::string& prefix = "model/");
bool has_average(const CheckpointReader& reader, const ParameterSet& parameters);

}  // namespace tfm
