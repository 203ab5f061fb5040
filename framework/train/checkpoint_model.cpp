#include "train/checkpoint_model.h"

#include <algorithm>
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

Config inference_config(const std::string& step_dir, const std::vector<std::string>& overrides, int ranks) {
  Config c = checkpoint_config(step_dir, overrides);
  const bool tensor_given = std::ranges::any_of(overrides, [](const std::string& o) { return o.starts_with("parallel.tensor="); });
  if (!tensor_given) c.parallel.tensor = ranks;
  c.parallel.data = 0;
  c.parallel.sequence = false;
  c.train.micro_batch_size = 1;
  if (ranks % std::max<std::int64_t>(c.parallel.tensor, 1) == 0) c.train.global_batch_size = ranks / c.parallel.tensor;
  resolve_for_ranks(c, ranks);
  return c;
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
