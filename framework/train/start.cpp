#include "train/start.h"

#include <cmath>
#include <filesystem>
#include <fstream>

#include "checkpoint/parameters.h"
#include "comm/consensus.h"
#include "config/settings.h"
#include "core/host.h"
#include "core/strings.h"
#include "huggingface/sidecars.h"
#include "inference/initial_weights.h"
#include "inference/loaded_model.h"
#include "inference/text_format.h"
#include "models/registry.h"
#include "train/engine_state.h"

namespace tfm::train {
namespace {

// Error(input) where `path`, of checkpoint.resume, is no checkpoint.
void require_checkpoint(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const std::string manifest = path + "/manifest.json";
  if (fs::exists(manifest, ignored)) return;
  std::string latest;
  if (std::ifstream file(path + "/latest"); file) file >> latest;
  if (!latest.empty())
    throw Error(ExitCode::input,
                path + " has checkpoints; expected one of them, such as " + path + "/" + latest);
  throw Error(ExitCode::input,
              (fs::is_directory(path, ignored) ? manifest : path) +
                  (fs::exists(path, ignored) ? " is missing" : " does not exist") +
                  "; expected auto, never, or the folder of a complete checkpoint, such as "
                  "checkpoints/step-00000100");
}

// The checkpoint to resume from, the same on every rank; empty: none.
std::string checkpoint_to_resume(const TrainingRun& run) {
  std::string path;
  const config::CheckpointConfig& c = run.config.checkpoint;
  if (run.lead() && c.resumes_latest())
    path = checkpoint::find_latest(c.dir, [](const std::string& why) { warn(why); }).value_or("");
  if (run.lead() && c.resumes_path()) {
    path = c.resume;
    config::at_key(run.config.places, "checkpoint.resume", [&] {
      require_checkpoint(path);
      checkpoint::CheckpointReader(path).verify();
    });
  }
  return comm::broadcast(run.mesh.world(), path);
}

// Of the run that wrote a checkpoint. Error(usage) where this run has another model or batch.
config::Config config_before(const std::string& path, const checkpoint::Manifest& m,
                             const config::Config& now) {
  if (m.samples_seen != m.step * now.train.batch_size())
    throw Error(ExitCode::usage,
                path + " was written with a global batch size of " +
                    std::to_string(m.samples_seen / std::max<std::int64_t>(m.step, 1)) +
                    "; set the same size to resume, so that every sample is seen once");
  const config::Config before = config::parse_config(m.config, path + "/manifest.json", {});
  std::string model = config::changed_model(before, now);
  if (before.model.embeds() != now.model.embeds())  // without a weight that says so
    model = "other model.heads";
  if (!model.empty())
    throw Error(ExitCode::usage,
                path + " was written with " + model +
                    "; expected the same model to resume it, or another checkpoint.dir");
  return before;
}

// On one rank.
std::unique_ptr<nn::Model> whole_model(config::Config config) {
  config.parallel = {.data = 1};
  return models::make_model(config, comm::single_mesh());
}

// One line for each setting that changes what steps compute, and for a jump of the learning rate.
void warn_of_changes(const config::Config& before, const config::Config& now, std::int64_t step) {
  std::vector<std::string> keys{"model.rope.",
                                "model.layer_kinds",
                                "model.heads",
                                "model.head_bias",
                                "model.dropout",
                                "model.experts.",
                                "optimizer.",
                                "schedule.",
                                "loss.",
                                "precision",
                                "tf32",
                                "data.train.",
                                "data.tokenizer",
                                "data.source_tokenizer",
                                "data.restart_positions",
                                "train.seq_len",
                                "train.global_batch_tokens"};
  const optim::Schedule old_rates = plan::schedule_of(before), rates = plan::schedule_of(now);
  if (rates.ends() && old_rates.total != rates.total) keys.push_back("train.steps");
  for (const config::Change& c : config::changes_between(before, now, keys))
    warn("resumed with another " + c.key + ": " + c.now + " from here on, " + c.before + " before" +
         (c.key == "train.steps"
              ? "; schedule " + config::word(now.schedule.type) + " ends with train.steps"
              : ""));
  const double last = old_rates.at(std::max<std::int64_t>(step, 1)), next = rates.at(step + 1),
               expected = old_rates.at(step + 1);
  constexpr double kSame = 1e-6;
  if (std::abs(next - expected) <= kSame * std::max(next, expected)) return;
  warn("the learning rate goes from " + number_text(last) + " at step " + std::to_string(step) +
       " to " + number_text(next) + " at step " + std::to_string(step + 1) +
       (last > 0 ? " (" + printed("%.3g", next / last) + " times)" : ""));
}

// What resume() refuses, from the headers alone.
void check_resumable(const std::string& path, const config::Config& config) {
  const checkpoint::CheckpointReader reader(path);
  config_before(path, reader.manifest(), config);
  check_restorable(reader, path, whole_model(config)->parameters(),
                   *optim::make_rule(config.optimizer));
}

// Error(input) where the run's tokenizer is another one than when `path` was written.
void require_tokenizer(const TrainingRun& run, const std::string& path,
                       const std::string& or_else) {
  const std::string text = inference::other_tokenizer(path, *run.data.tokenizer, run.config.data);
  if (!text.empty())
    throw Error(ExitCode::input, "data.tokenizer: " + text + "; put that file back, or " + or_else);
}

void resume(TrainingRun& run, const std::string& path) {
  const checkpoint::CheckpointReader reader(path);
  const checkpoint::Manifest& m = reader.manifest();
  const config::Config before = config_before(path, m, run.config);
  const bool says = run.lead() && !checkpoint::is_import(reader);  // what an import has is made up
  if (says) warn_of_changes(before, run.config, m.step);
  if (m.data_tokens > 0 && m.data_tokens != run.data.tokens && run.lead())
    warn(path + " was written by a run on training data of " + std::to_string(m.data_tokens) +
         " tokens; now they are " + std::to_string(run.data.tokens) +
         ", and samples differ from here on");
  if (m.seed != run.config.train.seed && says)
    warn(path + " was written with train.seed " + std::to_string(m.seed) +
         "; data order and dropout differ from here on");
  const config::ModelConfig& model = run.config.model;
  if (says && !model.random_init() && model.init != m.init && (!m.init.empty() || m.extra == "{}"))
    warn("model.init " + model.init + " is not read: the run goes on from " + path +
         ", and began with " + (m.init.empty() ? "other weights" : m.init) +
         "; set another checkpoint.dir to begin anew");
  const config::DataConfig& data = run.config.data;
  if (!data.tokenizer.empty() && before.data.tokenizer == data.tokenizer &&
      before.data.source_tokenizer == data.source_tokenizer)
    require_tokenizer(run, path, "set another checkpoint.dir");
  restore(reader, path, run.engine, true);
  optim::LossScale& scale = run.engine.loss_scale();
  if (scale.dynamic && m.loss_scale.dynamic) scale = m.loss_scale;
  run.provenance = m.extra;
  run.init = m.init;
  if (run.best && m.best && m.best->metric == run.best->metric) run.best = m.best;
  run.step = m.step;
  run.evaluation_due = m.evaluation_due && run.config.data.validation && run.config.eval.every > 0;
  if (run.lead()) say("resumed from " + path + " at step " + std::to_string(m.step));
}

// Files may hold options of several rules, of which optimizer.type chooses one: a section each.
void warn_of_unused_options(const config::Config& config) {
  const std::string chosen = config::word(config.optimizer.type);
  const config::Config usual;
  const auto values = config::values_by_key(config), defaults = config::values_by_key(usual);
  for (const auto& [key, value] : values)
    for (const std::string_view owner : words(config.optimizer.type))
      if (owner != chosen && key.starts_with("optimizer." + std::string(owner) + ".") &&
          value != defaults.at(key))
        warn(key + " has no effect with optimizer.type " + chosen);
}

}  // namespace

void check_start(const config::Config& config, config::Problems& problems) {
  if (rank_of_launch() == 0) warn_of_unused_options(config);
  if (config.model.next_sentence() && config.model.random_init() &&
      !config.data.train.next_sentence)
    problems.add({"model.next_sentence", "data.train.next_sentence"},
                 "model.next_sentence is true, but data.train.next_sentence is false, so the "
                 "head would not be trained; expected the same value");
  if (config.model.embeds() && !config.data.train.kind().labelled)
    problems.add({"model.heads", "data.train.type"},
                 "a head of type embed learns from pairs of texts, which data.train.type " +
                     config.data.train.type + " does not have; expected " +
                     config::types_where([](const auto& t) { return t.labelled; }) +
                     " with text_pair, or another head");
  const std::string& init = config.model.init;
  if (!config.model.random_init())
    problems.collect("model.init", [&] {
      const auto model = whole_model(config);
      const std::vector<std::string> unused =
          inference::check_initial_weights(init, config.model, model->parameters());
      if (!unused.empty() && rank_of_launch() == 0)
        warn(init + " has " + std::to_string(unused.size()) +
             " tensors that the model does not use, such as " + unused.front());
    });
}

void check_checkpoints(const config::Config& config, config::Problems& problems) {
  if (config.checkpoint.resumes_path())
    problems.collect("checkpoint.resume", [&] {
      require_checkpoint(config.checkpoint.resume);
      checkpoint::CheckpointReader(config.checkpoint.resume).check_headers();
      check_resumable(config.checkpoint.resume, config);
    });
  std::error_code ignored;
  std::string dir = config.checkpoint.directory();
  while (dir.size() > 1 && dir.ends_with('/')) dir.pop_back();  // by which a link is followed
  const auto found = std::filesystem::status(dir, ignored);  // once: another rank may make it now
  if (found.type() == std::filesystem::file_type::not_found &&
      std::filesystem::is_symlink(dir, ignored))
    problems.add({"checkpoint.dir"},
                 "checkpoint.dir: " + dir + ": is a symbolic link to " +
                     std::filesystem::read_symlink(dir, ignored).string() +
                     ", which does not exist; make that directory, or set another one");
  if (!dir.empty() && huggingface::is_huggingface(dir) && checkpoint::count_steps(dir) == 0)
    problems.add({"checkpoint.dir"},
                 "checkpoint.dir: " + dir +
                     ": has a config.json (Hugging Face), and programs would read that model "
                     "instead of the checkpoints; set another directory");
  if (std::filesystem::exists(found) && !std::filesystem::is_directory(found))
    problems.add({"checkpoint.dir"},
                 "checkpoint.dir: " + dir + ": is a file; expected a directory");
}

void check_latest(const config::Config& config, config::Problems& problems) {
  const config::CheckpointConfig& c = config.checkpoint;
  if (!c.resumes_latest()) return;
  problems.collect("checkpoint.dir", [&] {
    const auto latest = checkpoint::find_latest(
        c.dir,
        [](const std::string& why) {
          if (rank_of_launch() == 0) warn(why);
        },
        checkpoint::Verification::headers);
    if (latest) check_resumable(*latest, config);
  });
}

std::optional<plan::EarlierChoice> earlier_choice(const config::Config& config) {
  const config::CheckpointConfig& c = config.checkpoint;
  const bool chooses_size = config.train.micro_batch() == 0;
  if (!chooses_size && config.recompute != config::Recompute::automatic) return std::nullopt;
  try {
    std::string path;
    if (c.resumes_path()) path = c.resume;
    if (c.resumes_latest())
      path = checkpoint::find_latest(
                 c.dir, [](const std::string&) {}, checkpoint::Verification::headers)
                 .value_or("");
    if (path.empty()) return std::nullopt;
    const checkpoint::CheckpointReader reader(path);
    if (checkpoint::is_import(reader)) return std::nullopt;  // nothing was chosen
    const config::Config before =
        config::parse_config(reader.manifest().config, path + "/manifest.json", {});
    if (chooses_size && before.train.counts_tokens() != config.train.counts_tokens())
      return std::nullopt;
    return plan::EarlierChoice{path, plan::LayoutChoice::of(before)};
  } catch (const Error&) {
    return std::nullopt;
  }
}

void start_from(TrainingRun& run) {
  run.engine.initialize_parameters();
  if (const std::string path = checkpoint_to_resume(run); !path.empty()) return resume(run, path);
  const config::ModelConfig& model = run.config.model;
  if (model.random_init()) return;
  config::at_key(run.config.places, "model.init", [&] {
    const std::string path = inference::verified_path(model.init, run.mesh.world());
    const config::DataConfig& data = run.config.data;
    const inference::InitialWeights weights = inference::open_initial_weights(
        path, model, run.engine.model().parameters(), run.config.train.seed);
    const config::InitialConfig initial = inference::config_of_directory(path);
    if (data.tokenizer == initial.tokenizer && data.source_tokenizer == initial.source_tokenizer)
      require_tokenizer(run, path, "set data.tokenizer");
    run.engine.set_weights(weights.read);
    run.provenance = weights.provenance;
    run.init = model.init;
    if (!run.lead()) return;
    say("initialized weights from " + model.init);
    if (!weights.added.empty())
      say("new, with random weights: " +
          join(std::vector<std::string_view>(weights.added.begin(), weights.added.end())));
  });
}

}  // namespace tfm::train
