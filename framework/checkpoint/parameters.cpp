#include "checkpoint/parameters.h"

namespace tfm::checkpoint {

Slice slice_of(const nn::PartSlice& p, std::int64_t first, std::int64_t count) {
  return {p.axis, p.begin, p.end, first, count};
}

void check_shape(const CheckpointReader& reader, const std::string& path, const std::string& name,
                 const Shape& expected) {
  if (!reader.has(name))
    throw Error(
        ExitCode::input,
        path + ": the checkpoint has no tensor '" + name +
            "'; it belongs to another model: compare `model:` with the config in its manifest");
  if (!(reader.shape(name) == expected))
    throw Error(ExitCode::input, path + ": tensor '" + name + "' is " + reader.shape(name).str() +
                                     " in the checkpoint; this configuration needs " +
                                     expected.str() +
                                     "; set `model:` to what the checkpoint was written with");
}

void restore_parameters(const CheckpointReader& reader, const std::string& path,
                        const nn::ParameterSet& parameters, float* flat,
                        const std::string& prefix) {
  for (const nn::PartSlice& p : parameters.slices()) {
    const std::string name = prefix + p.name;
    check_shape(reader, path, name, p.full);
    if (p.elements() > 0) reader.read(name, slice_of(p, 0, p.elements()), flat + p.offset);
  }
}

bool has_average(const CheckpointReader& reader, const nn::ParameterSet& parameters) {
  return reader.has("ema/" + parameters.slices().front().name);
}

}  // namespace tfm::checkpoint
