#include "inference/loaded_model.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <future>

#include "checkpoint/parameters.h"
#include "comm/consensus.h"
#include "config/settings.h"
#include "huggingface/sentence_encoder.h"
#include "huggingface/sidecars.h"
#include "huggingface/weights.h"
#include "inference/initial_weights.h"
#include "inference/text_format.h"
#include "models/registry.h"
#include "tokenizer/tokenizer.h"

namespace tfm::inference {

config::Config huggingface_run(const std::string& dir) {
  config::Config c;
  c.model = huggingface::HuggingFaceModel(dir).model();
  c.train.seq_len = std::min(c.model.max_seq_len,
                             huggingface::sentence_length(dir).value_or(c.model.max_seq_len));
  c.data.train.type = c.model.labelled_heads().empty() && !c.model.embeds()
                          ? config::first_type(c.model.family, config::SourceType::Files::any)
                          : "labelled";
  c.data.train.paths = {{"unknown", 1}};
  if (c.model.embeds()) c.data.train.text_pair = "text_pair";
  c.data.tokenizer = dir;  // whoever needs one is told where there is none
  return c;
}

namespace {

std::string checkpoints_of_run(const std::string& path) {
  return (std::filesystem::path(path) / "checkpoints").string();
}

// Whether the checkpoints of a directory are those of the run that it is the folder of.
bool is_run(const std::string& path) {
  std::error_code ignored;
  return checkpoint::count_steps(path) == 0 &&
         std::filesystem::is_directory(checkpoints_of_run(path), ignored);
}

}  // namespace

std::string checkpoint_path(const std::string& path, checkpoint::Verification verification) {
  if (huggingface::is_huggingface(path)) {
    if (checkpoint::count_steps(path) > 0)
      throw Error(ExitCode::input, path +
                                       ": has both a config.json (Hugging Face) and checkpoints; "
                                       "expected one of the two: name a checkpoint (" +
                                       path + "/step-...), or move either away");
    return path;
  }
  if (std::filesystem::exists(path + "/manifest.json")) return path;
  static const std::string expected =
      "; expected a directory with config.json (Hugging Face), with manifest.json (a checkpoint), "
      "of checkpoints (step-...), or of a run (with checkpoints/)";
  if (!std::filesystem::exists(path))
    throw Error(ExitCode::input, path + ": no such directory" + expected);
  const std::string dir = is_run(path) ? checkpoints_of_run(path) : path;
  const auto newest = checkpoint::find_latest(
      dir, [](const std::string& why) { std::fprintf(stderr, "warning: %s\n", why.c_str()); },
      verification);
  if (!newest) throw Error(ExitCode::input, dir + ": no checkpoint found" + expected);
  return *newest;
}

std::string verified_path(const std::string& path, comm::Communicator& world) {
  std::string error;
  std::future<std::string> search;  // of the path; empty with an error
  if (world.rank() == 0)
    search = std::async(std::launch::async, [&] {
      try {
        const std::string found = checkpoint_path(path, checkpoint::Verification::checksums);
        if (found == path && !huggingface::is_huggingface(path))
          checkpoint::CheckpointReader(path).verify();
        if (found != path && is_run(path))
          std::fprintf(stderr, "%s: the checkpoint %s is read\n", path.c_str(), found.c_str());
        return found;
      } catch (const Error& e) {
        if (e.code() != ExitCode::input) throw;
        error = e.what();
        return std::string();
      }
    });
  const std::string found = comm::broadcast_when_ready(world, [&]() -> std::optional<std::string> {
    if (search.wait_for(std::chrono::seconds(1)) != std::future_status::ready) return {};
    return search.get();
  });
  if (found.empty()) throw Error(ExitCode::input, comm::broadcast(world, error));
  return found;
}

namespace {

// Where the tokenizer of a checkpoint's run is now.
std::string find_tokenizer(const std::string& step_dir, const std::string& directory,
                           const std::string& spec) {
  namespace fs = std::filesystem;
  if (spec.empty() || tokenizer::is_bytes(spec)) return "bytes";
  std::error_code none;
  const fs::path written = fs::path(directory) / spec;  // `spec` itself if that is absolute
  if (fs::exists(written, none))
    return fs::equivalent(written, spec, none) ? spec : written.string();
  const fs::path beside = tokenizer_beside(step_dir), file = fs::path(spec).filename(),
                 moved = file == beside.filename() ? beside : beside / file;
  return fs::exists(spec, none) || !fs::exists(moved, none) ? spec : moved.string();
}

}  // namespace

config::Config checkpoint_config(const std::string& step_dir,
                                 const std::vector<std::string>& overrides) {
  const bool theirs = huggingface::is_huggingface(step_dir);
  const std::string name = step_dir + (theirs ? "/config.json" : "/manifest.json (config)");
  config::Config c;
  if (theirs) {
    c = huggingface_run(step_dir);
  } else {
    const checkpoint::Manifest manifest = checkpoint::CheckpointReader(step_dir).manifest();
    c = config::parse_config(manifest.config, name, {});
    c.data.tokenizer = find_tokenizer(step_dir, manifest.directory, c.data.tokenizer);
    if (std::string& source = c.data.source_tokenizer; !source.empty())
      source = find_tokenizer(step_dir, manifest.directory, source);
  }
  // Device, precision and layout of the training run do not count; those asked for here do.
  c.device = config::DeviceKind::cpu;
  c.precision = config::Precision::fp32;
  c.tf32 = false;
  c.cuda_graphs = config::CudaGraphs::automatic;
  c.parallel = {};
  const config::Config written = c;
  c = config::with_overrides(c, overrides, name);
  if (const std::string model = config::changed_model(written, c); !model.empty())
    throw Error(ExitCode::usage, name + ": the model has " + model + "; remove overrides of these");
  if (c.precision != config::Precision::fp32)
    throw Error(ExitCode::usage, "precision=" + config::word(c.precision) +
                                     ": inference supports only precision fp32 in this version; "
                                     "remove precision= from the command line");
  return c;
}

config::Config inference_config(const std::string& step_dir,
                                const std::vector<std::string>& overrides, int ranks) {
  config::Config c = checkpoint_config(step_dir, overrides);
  const config::ParallelConfig& p = c.parallel;
  for (const auto& [key, value, usual] : {std::tuple{"parallel.pipeline", p.pipeline, 1},
                                          {"parallel.context", p.context, 1},
                                          {"parallel.zero", p.zero, 0}})
    if (value != usual)
      throw Error(ExitCode::usage,
                  std::string(key) + "=" + std::to_string(value) +
                      " is not valid here: ranks share a model that is only read by "
                      "parallel.tensor and parallel.expert, and its sequences by parallel.data; "
                      "expected " +
                      std::to_string(usual));
  c.parallel.data = 0;
  c.parallel.sequence = false;
  c.train.micro_batch_size = c.sequences_together();
  const auto resolved = [&](std::int64_t tensor) {
    config::Config r = c;
    r.parallel.tensor = tensor;
    if (ranks % std::max<std::int64_t>(tensor, 1) == 0)
      r.train.global_batch_size = ranks / tensor * c.train.micro_batch_size;
    config::resolve_for_ranks(r, ranks);
    return r;
  };
  if (std::ranges::any_of(overrides,
                          [](const std::string& o) { return o.starts_with("parallel.tensor="); }))
    return resolved(c.parallel.tensor);
  for (std::int64_t tensor = ranks;; --tensor)
    if (ranks % tensor == 0) try {
        return resolved(tensor);
      } catch (const Error&) {  // the model cannot be split in so many
        if (tensor == 1) throw;
      }
}

LoadedModel load_model(const std::string& step_dir, const config::Config& config,
                       comm::RankContext rank_context) {
  LoadedModel m{.config = config,
                .rank_context = std::move(rank_context),
                .model = models::make_model(config, m.rank_context.mesh)};
  const nn::ParameterSet& parameters = m.model->parameters();
  comm::Communicator& world = m.rank_context.mesh.world();
  const double wait = config.parallel.longest_wait();
  m.watchdog = std::make_unique<comm::Watchdog>(
      m.rank_context.mesh, wait + checkpoint::longest_transfer(parameters.total_elements()));
  device::Device& device = m.rank_context.device;
  const std::int64_t bytes = parameters.flat_elements() * static_cast<std::int64_t>(sizeof(float));
  m.memory = device.allocate(bytes);
  const auto host = device.is_cpu() ? m.memory : device.allocate_host(bytes);
  const InitialWeights weights = open_initial_weights(step_dir, config.model, parameters);
  for (const nn::PartSlice& p : parameters.slices())
    weights.read(p, 0, p.elements(), reinterpret_cast<float*>(host.get()) + p.offset);
  if (!device.is_cpu()) device::upload(device.stream(), m.memory.get(), host.get(), bytes);
  world.barrier();
  m.watchdog->set_timeout(wait);
  return m;
}

}  // namespace tfm::inference
