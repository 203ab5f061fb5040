#include "train/initial_weights.h"

#include "train/checkpoint_model.h"
#include "train/huggingface/weights.h"
#include "train/state.h"

namespace tfm {

ModelConfig model_of_directory(const std::string& path) {
  if (is_huggingface(path)) return HuggingFaceModel(path).model();
  ModelConfig m = checkpoint_config(checkpoint_path(path), {}).model;
  m.preset.clear();
  return m;
}

std::string load_initial_weights(const std::string& path, const ModelConfig& model, const ParameterSet& parameters, float* flat) {
  if (!is_huggingface(path)) {
    const CheckpointReader reader(checkpoint_path(path));
    restore_parameters(reader, path, parameters, flat, has_average(reader, parameters) ? "ema/" : "model/");
    return reader.manifest().extra;
  }
  HuggingFaceModel source(path);
  source.check(model);
  for (const PartSlice& p : parameters.slices()) ParameterSet::scatter(p, source.part(p.name).data(), flat);
  return source.provenance();
}

}  // namespace tfm
