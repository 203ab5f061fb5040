#include "verify/save_and_load.h"

#include <unistd.h>

#include <filesystem>

#include "comm/consensus.h"
#include "train/engine_state.h"
#include "verify/synthetic_data.h"

namespace tfm::verify {
namespace {

std::vector<float> values_of(const checkpoint::Chunk& piece) {
  std::vector<float> all;
  piece.each_block(
      [&](const float* data, std::int64_t n) { all.insert(all.end(), data, data + n); });
  return all;
}

// Made for this job where the ranks of all hosts see it.
std::string shared_folder(const comm::Mesh& mesh) {
  namespace fs = std::filesystem;
  std::error_code ignored, failed;
  std::string why;
  for (const fs::path& place : {fs::temp_directory_path(ignored), fs::current_path(ignored)}) {
    const std::string dir = comm::broadcast(
        mesh.world(), (place / ("tfm-verify-" + std::to_string(getpid()))).string());
    if (mesh.rank() == 0) fs::create_directory(dir, failed);
    why += "\n  " + dir + ": " +
           comm::broadcast(mesh.world(), failed ? failed.message() : "not there on all hosts");
    mesh.world().barrier();
    std::int32_t missing = !fs::is_directory(dir, ignored);
    mesh.world().all_reduce({&missing, DType::i32, {1}}, comm::Collective::all_reduce_max);
    if (!missing) return dir;
    if (mesh.rank() == 0) fs::remove(dir, ignored);
  }
  throw Error(
      ExitCode::environment,
      "no folder for a checkpoint that all ranks see; start in one that they may write and share, "
      "or set TMPDIR to it:" +
          why);
}

}  // namespace

Finding save_and_load(const config::Config& config, const comm::Mesh& mesh,
                      const device::Device& device,
                      const std::function<void(train::Engine&)>& on_loaded) {
  Finding f{"save and load", "", 0, 0};
  const std::string dir = shared_folder(mesh);
  train::Engine saved(plan::make_step_plan(config, mesh), device),
      loaded(plan::make_step_plan(config, mesh), device);
  saved.initialize_parameters();
  const SyntheticData data(saved.plan().config, saved.plan().shapes[0].batch, 1);
  data::DataLoader loader = saved.training_loader(data);
  saved.train_step(1, config.optimizer.lr, loader.load(0));
  const auto pieces = train::checkpoint_chunks(saved);
  const checkpoint::CheckpointResult r = checkpoint::write_checkpoint(
      dir, {.step = 1}, pieces, 0, checkpoint::checkpoint_ranks(mesh.world()));
  if (r.ok()) {
    train::restore(checkpoint::CheckpointReader(r.path), r.path, loaded, true);
    on_loaded(loaded);
    const auto back = train::checkpoint_chunks(loaded);
    for (std::size_t i = 0; i < pieces.size(); ++i)
      if (values_of(pieces[i]) != values_of(back[i])) f.error = 1, f.worst = pieces[i].name;
  }
  mesh.world().all_reduce({&f.error, DType::f64, {1}}, comm::Collective::all_reduce_max);
  mesh.world().barrier();
  if (mesh.rank() == 0) std::filesystem::remove_all(dir);
  if (!r.ok())
    throw Error(ExitCode::retryable, r.error + "; set TMPDIR to a folder with more room");
  return f;
}

}  // namespace tfm::verify
