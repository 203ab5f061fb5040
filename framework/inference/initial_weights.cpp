#include "inference/initial_weights.h"

#include "checkpoint/parameters.h"
#include "comm/consensus.h"
#include "huggingface/sidecars.h"
#include "huggingface/weights.h"
#include "inference/loaded_model.h"

namespace tfm::inference {
namespace {

// `path` where it is a checkpoint, else the newest intact one of the folder.
std::string verified_checkpoint(const std::string& path, comm::Communicator& world) {
  std::string found, error;
  if (world.rank() == 0) try {
      found = checkpoint_path(path);  // verifies what it chooses in a folder
      if (found == path) checkpoint::CheckpointReader(path).verify();
    } catch (const Error& e) {
      if (e.code() != ExitCode::input) throw;
      error = e.what();
    }
  if (error = comm::broadcast_string(world, error); !error.empty())
    throw Error(ExitCode::input, error);
  return comm::broadcast_string(world, found);
}

}  // namespace

config::ModelConfig model_of_directory(const std::string& path) {
  if (huggingface::is_huggingface(path)) return huggingface::HuggingFaceModel(path).model();
  config::ModelConfig m =
      checkpoint_config(checkpoint_path(path, checkpoint::Verification::headers), {}).model;
  m.preset.clear();
  return m;
}

std::string load_initial_weights(const std::string& path, const config::ModelConfig& model,
                                 const nn::ParameterSet& parameters, float* flat,
                                 comm::Communicator& world) {
  if (!huggingface::is_huggingface(path)) {
    const checkpoint::CheckpointReader reader(verified_checkpoint(path, world));
    checkpoint::restore_parameters(reader, path, parameters, flat,
                                   checkpoint::has_average(reader, parameters) ? "ema/" : "model/");
    return reader.manifest().extra;
  }
  huggingface::HuggingFaceModel source(path);
  source.check(model);
  source.check_copies();
  for (const nn::PartSlice& p : parameters.slices()) {
    const std::int64_t rows = p.full[0], cols = p.full.rank() > 1 ? p.full[1] : 1;
    huggingface::PartRange range{rows, cols, 0, rows, 0, cols};
    if (p.axis == 0) range.first_row = p.begin, range.last_row = p.end;
    if (p.axis == 1) range.first_col = p.begin, range.last_col = p.end;
    source.read(p.name, range, flat + p.offset);
  }
  return source.provenance();
}

}  // namespace tfm::inference
