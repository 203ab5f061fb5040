#pragma once
// Parameters of a checkpoint, into a rank's flat buffer.
#include "checkpoint/checkpoint.h"
#include "nn/parameter.h"

namespace tfm::checkpoint {

// Parameters alone into a flat buffer laid out by `parameters` (f32).
// `prefix`: "model/" for the weights, "ema/" for their average.
void restore_parameters(const CheckpointReader& reader, const std::string& path,
                        const nn::ParameterSet& parameters, float* flat,
                        const std::string& prefix = "model/");
bool has_average(const CheckpointReader& reader, const nn::ParameterSet& parameters);

// The run of `count` elements from `first` on of a rank's slice of a part.
Slice slice_of(const nn::PartSlice& part, std::int64_t first, std::int64_t count);
// Error(input) where the checkpoint has no tensor `name` of that shape.
void check_shape(const CheckpointReader& reader, const std::string& path, const std::string& name,
                 const Shape& expected);

}  // namespace tfm::checkpoint
