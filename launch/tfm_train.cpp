// tfm-train: trains what a configuration describes, on the ranks of this launch.
#include <algorithm>
#include <cstdio>
#include <string>

#include "core/strings.h"
#include "data/samples_text.h"
#include "launch/bench/peak.h"
#include "launch/programs.h"
#include "launch/support/automatic.h"
#include "launch/support/device_choice.h"
#include "launch/sweep/sweep.h"
#include "plan/suggest.h"
#include "train/start.h"
#include "train/trainer.h"

namespace {

constexpr const char* kHelp =
    R"(usage: [mpirun -np N] tfm-train CONFIG.yaml [section.key=value ...] [options]
  --check            validate the configuration for the ranks of this launch, open its data,
                     tokenizer and checkpoints, then exit with 0, 2 (configuration) or 3 (files)
  --ranks N          with --check: validate for N ranks
  --sweep KEY=V,V... ...
                     train once for each combination of the values, one run after the other, each
                     in a folder named by its values; then write a report of all. Started again, it
                     continues. Exit code 1 if a run failed. Later keys with one value, such as
                     train.steps=100, are overrides as usual, which count for every run
  --launcher CMD     with --sweep: what starts the ranks of a run, such as "mpirun -np 4"
  --samples N        print the first N sequences of the training data as text: what the model reads,
                     and the labels
  --ids              with --samples: print them as lines of JSON, with the ids of each field
  --dump-config      print the effective configuration
  --keys             list all configuration keys with type, default and meaning
  --json-schema      print them as a JSON schema, for editors
  --help, --version
Signals: SIGUSR1 writes a checkpoint; SIGUSR2 and SIGTERM write one and stop, and so do Ctrl-C, unless
checkpoint.dir is none (a second Ctrl-C ends at once), and a file named STOP in that directory.
)";

using namespace tfm;

// Advice after running out of device memory: a configuration that fits, or what libraries and
// scratch memory take in addition to the plan.
std::string what_fits(const config::Config& config, int ranks, std::int64_t available_bytes) {
  for (const std::int64_t sixteenths : {15, 12, 8}) {
    const auto fit = plan::nearest_fit(config, ranks, available_bytes / 16 * sixteenths);
    if (!fit) break;
    if (fit->choice == plan::LayoutChoice::of(config)) continue;
    std::string text = "; this layout fits, with " + std::to_string(fit->bytes) + " bytes:";
    for (const std::string& o : launch::overrides_of(config, fit->choice)) text += " " + o;
    return text;
  }
  return "";
}

// What is said of a directory that was not asked for, where `usual` may be taken.
std::string keeps_in(const config::CheckpointConfig& c, const std::string& usual) {
  const std::string often = c.every > 0 ? "every " + counted(c.every, "step") + " and "
                            : c.every_minutes > 0
                                ? "every " + counted(c.every_minutes, "minute") + " and "
                                : "";
  return "checkpoints in " + c.dir + ", " + often +
         "at the end; checkpoint.dir sets another directory, none keeps nothing" +
         (c.dir == usual ? ""
                         : "; " + usual + " has those of a run with other settings, or of one " +
                               "that is done: checkpoint.dir=" + usual + " would go on with it");
}

std::vector<std::string> notes_of(const plan::Choice& choice, const std::string& keeps) {
  std::vector<std::string> notes;
  if (!keeps.empty()) notes.push_back(keeps);
  if (!choice.micro_batch_text.empty()) notes.push_back("micro-batch " + choice.micro_batch_text);
  if (!choice.recompute_text.empty()) notes.push_back("recompute " + choice.recompute_text);
  return notes;
}

// Error(usage) for options that do not go together.
void check_options(const launch::Arguments& args) {
  if (args.has("--ranks") && !args.has("--check"))
    throw Error(ExitCode::usage, "--ranks is for --check; mpirun -np N starts N ranks");
  if (args.has("--launcher") && !args.has("--sweep"))
    throw Error(ExitCode::usage, "--launcher is for --sweep; mpirun -np N starts N ranks");
  if (args.has("--ids") && !args.has("--samples"))
    throw Error(ExitCode::usage, "--ids is for --samples");
  for (const char* other : {"--check", "--samples", "--dump-config"})
    if (args.has("--sweep") && args.has(other))
      throw Error(ExitCode::usage, std::string(other) + " is for one run, --sweep for several");
  for (const char* other : {"--check", "--dump-config"})
    if (args.has("--samples") && args.has(other))
      throw Error(ExitCode::usage, std::string(other) + " and --samples: expected one of them");
}

int run(int argc, char** argv) {
  const launch::Arguments args(argc, argv,
                               {{"--check", false},
                                {"--ranks"},
                                {"--sweep", true, true, launch::is_swept},
                                {"--launcher"},
                                {"--samples"},
                                {"--ids", false},
                                {"--dump-config", false},
                                {"--keys", false},
                                {"--json-schema", false}},
                               config::meant_key);
  check_options(args);
  if (args.has("--sweep")) return launch::run_sweep(args);
  const auto print = [](const std::string& text) {
    if (rank_of_launch() == 0) std::printf("%s", text.c_str());
    return 0;
  };
  if (args.has("--keys")) return print(config::config_reference());
  if (args.has("--json-schema")) return print(config::config_schema());
  train::StopRequests requests;  // from now on: one that comes at the start is obeyed, too
  config::Config config = launch::load_config(args.only("configuration file"), args.overrides());
  if (args.has("--dump-config") && !args.has("--check")) return print(config::dump_config(config));
  if (args.has("--samples")) {
    const auto samples = args.has("--ids") ? data::samples_json : data::samples_text;
    return print(rank_of_launch() == 0 ? samples(config, args.integer("--samples", 1, 1)) : "");
  }
  launch::Launch launch(true, config.parallel.timeout);
  launch::choose_device(launch, config);
  launch.check_same(config);
  if (args.has("--check")) {
    const config::Config read = config;
    config::resolve_for_ranks(
        config, static_cast<int>(args.integer("--ranks", launch.ranks, 1, launch::kMostRanks)));
    train::check_inputs(config);
    // The device of the run is to choose.
    config.train.set_micro_batch(read.train.micro_batch()), config.recompute = read.recompute;
    return print(args.has("--dump-config") ? config::dump_config(config)
                                           : "configuration is valid\n");
  }
  std::string keeps;
  if (config.checkpoint.dir.empty()) {
    config.checkpoint.dir =
        launch.broadcast(rank_of_launch() == 0 ? train::default_directory(config) : std::string());
    keeps = keeps_in(config.checkpoint, train::first_directory(config));
  }
  const config::Config read = config;
  const plan::Choice choice =
      launch::choose(launch, config, [&] { return train::earlier_choice(read); });
  try {
    launch::check_memory(launch, config);
    train::Machine machine{.host = {.cpu = launch::cpu_model(),
                                    .ranks = launch.cores.ranks,
                                    .threads = launch.cores.threads,
                                    .cores = launch.cores.together,
                                    .oversubscribed = launch.cores.oversubscribed},
                           .notes = notes_of(choice, keeps)};
    launch::set_peak(launch, config, machine);
    train::train(config, launch.mesh(config::layout_of(config)), launch.device(config), requests,
                 machine);
  } catch (const device::OutOfMemory& e) {
    throw Error(ExitCode::environment, e.what() + what_fits(read, launch.ranks, e.available_bytes));
  }
  return 0;
}

}  // namespace

int tfm::launch::train_main(int argc, char** argv) {
  using tfm::launch::Output;
  const bool prints = std::any_of(argv + 1, argv + argc, [](const std::string& word) {
    const std::string a = word.substr(0, word.find('='));
    return a == "--check" || a == "--samples" || a == "--dump-config" || a == "--keys" ||
           a == "--json-schema";
  });
  return tfm::launch::guarded(argc, argv, kHelp, run, prints ? Output::results : Output::log);
}
