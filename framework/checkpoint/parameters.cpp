#include "checkpoint/parameters.h"

#include <algorithm>

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

nn::WeightSource weights_of(const CheckpointReader& reader, const std::string& path,
                            const nn::ParameterSet& parameters, const std::string& prefix,
                            const std::function<bool(const std::string& part)>& lacks) {
  for (const nn::PartSlice& p : parameters.slices())
    if (!lacks || !lacks(p.name)) check_shape(reader, path, prefix + p.name, p.full);
  return
      [&reader, prefix](const nn::PartSlice& p, std::int64_t first, std::int64_t count, void* out) {
        if (count > 0)
          reader.read(prefix + p.name, slice_of(p, first, count), static_cast<float*>(out));
      };
}

bool is_import(const CheckpointReader& reader) {
  return reader.manifest().step == 0 &&
         std::ranges::all_of(reader.names(), [](const auto& n) { return n.starts_with("model/"); });
}

bool has_average(const CheckpointReader& reader, const nn::ParameterSet& parameters) {
  return reader.has("ema/" + parameters.slices().front().name);
}

}  // namespace tfm::checkpoint
