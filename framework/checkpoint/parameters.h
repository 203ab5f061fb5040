#pragma once
// Parameters of a checkpoint.
#include "checkpoint/checkpoint.h"
#include "nn/parameter.h"

namespace tfm::checkpoint {

// Error(input) where the checkpoint does not have all of them. `reader` must outlive the result.
// `prefix`: "model/" for the weights, "ema/" for their average.
nn::WeightSource weights_of(const CheckpointReader& reader, const std::string& path,
                            const nn::ParameterSet& parameters,
                            const std::string& prefix = "model/");
bool has_average(const CheckpointReader& reader, const nn::ParameterSet& parameters);

// The run of `count` elements from `first` on of a rank's slice of a part.
Slice slice_of(const nn::PartSlice& part, std::int64_t first, std::int64_t count);
// Error(input) where the checkpoint has no tensor `name` of that shape.
void check_shape(const CheckpointReader& reader, const std::string& path, const std::string& name,
                 const Shape& expected);

}  // namespace tfm::checkpoint
