#pragma once
// Reads model parameters from a checkpoint.
#include "checkpoint/checkpoint.h"
#include "nn/parameter.h"

namespace tfm::checkpoint {

// The weights of `parameters`, read on demand from `reader`, which must outlive the result.
// Error(input) if the checkpoint lacks any of them. `prefix`: "model/" for the weights, "ema/" for
// their average. Parts for which `lacks` is true are not asked for.
nn::WeightSource weights_of(const CheckpointReader& reader, const std::string& path,
                            const nn::ParameterSet& parameters,
                            const std::string& prefix = "model/",
                            const std::function<bool(const std::string& part)>& lacks = {});
// Whether no run has written it and there is no optimizer's state in it, as tfm-convert import
// leaves it.
bool is_import(const CheckpointReader& reader);
bool has_average(const CheckpointReader& reader, const nn::ParameterSet& parameters);

// Elements [first, first + count) of a rank's slice of a part.
Slice slice_of(const nn::PartSlice& part, std::int64_t first, std::int64_t count);
// Error(input) unless the checkpoint has a tensor `name` of that shape.
void check_shape(const CheckpointReader& reader, const std::string& path, const std::string& name,
                 const Shape& expected);

}  // namespace tfm::checkpoint
