#include "train/checkpoint_model.h"

#include <cstdio>
#include <filesystem>

#include "train/state.h"

namespace tfm {

std::string checkpoint_path(const std::string& path) {
  if (std::filesystem::exists(path + "/manifest.json")) return path;
  const auto newest = find_latest(path, [](const std::string& why) { std::fprintf(stderr, "warning: %s\n", why.c_str()); });
  if (!newest)
    throw Error(ExitCode::input, path + ": no checkpoint found; expected a folder with manifest.json, or one that holds such folders (step-...)");
  return *newest;
}

Config checkpoint_config(const std::string& step_dir, const std::vector<std::string>& overrides) {
  return parse_config(CheckpointReader(step_dir).manifest().config, step_dir + "/manifest.json (config)", overrides);
}

LoadedModel load_model(const std::string& step_dir, const Config& config, const Mesh& mesh, const MakeModel& make_model) {
  LoadedModel m{.config = config, .mesh = mesh, .model = make_model(config, mesh)};
  m.flat.resize(static_cast<std::size_t>(m.model->parameters().flat_elements()));
  const CheckpointReader reader(step_dir);
  if (mesh.rank() == 0) reader.verify();
  restore_parameters(reader, step_dir, m.model->parameters(), m.flat.data());
  return m;
}

}  // namespace tfm
