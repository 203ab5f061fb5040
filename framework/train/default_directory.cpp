// Where a run without checkpoint.dir keeps its checkpoints.
#include <filesystem>

#include "checkpoint/lock.h"
#include "config/settings.h"
#include "io/file.h"
#include "train/start.h"

namespace tfm::train {
namespace {

namespace fs = std::filesystem;

// The settings that make two runs the same training, whatever they run on.
std::vector<config::Setting> training_of(const std::string& yaml) {
  std::vector<config::Setting> settings = config::settings_of(yaml);
  std::erase_if(settings, [](const config::Setting& s) {
    for (const char* section : {"model.", "train.", "optimizer.", "schedule.", "loss.", "data."})
      if (s.key.starts_with(section)) return s.key.starts_with("train.micro_batch");
    return s.key != "precision";
  });
  return settings;
}

// Whether the run that wrote `folder` has steps to do and is this one.
bool continues(const std::string& folder, const config::Config& config) {
  const auto same = [](const config::Setting& a, const config::Setting& b) {
    return a.key == b.key && a.value == b.value;
  };
  try {
    const auto latest = checkpoint::find_latest(
        folder + "/checkpoints", [](const std::string&) {}, checkpoint::Verification::headers);
    return latest && checkpoint::CheckpointReader(*latest).manifest().step < config.train.steps &&
           std::ranges::equal(training_of(io::read_whole_file(folder + "/config.yaml", 1 << 20)),
                              training_of(config::dump_config(config)), same);
  } catch (const Error&) {
    return false;
  }
}

// Whether this run may write there: nothing is there, or its own unfinished work.
bool takes(const std::string& folder, const config::Config& config) {
  const std::string dir = folder + "/checkpoints";
  const bool old = checkpoint::count_steps(dir) > 0;
  if (old && (!config.checkpoint.looks_for_latest() || !continues(folder, config))) return false;
  try {
    checkpoint::RunLock in_use(dir);
    return true;
  } catch (const Error& e) {
    if (e.code() != ExitCode::environment) throw;
    return false;
  }
}

}  // namespace

std::string first_directory(const config::Config& config) {
  return "runs/" + config.run.name + "/checkpoints";
}

std::string default_directory(const config::Config& config) {
  const std::string first = fs::path(first_directory(config)).parent_path().string();
  for (int n = 1;; ++n) {
    const std::string folder = n == 1 ? first : first + "-" + std::to_string(n);
    if (!takes(folder, config)) continue;
    io::replace_file(folder + "/config.yaml", config::dump_config(config));
    return folder + "/checkpoints";
  }
}

}  // namespace tfm::train
