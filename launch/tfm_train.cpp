// tfm-train: trains what a configuration describes, on the ranks of this launch.
#include <cstdio>
#include <string>

#include "launch/support/fit.h"
#include "launch/support/program.h"
#include "models/registry.h"
#include "train/trainer.h"

namespace {

constexpr const char* kHelp =
    "usage: [mpirun -np N] tfm-train CONFIG.yaml [section.key=value ...] [options]\n"
    "  --check            read and check everything for the ranks of this launch, then exit 0 or 2\n"
    "  --ranks N          with --check: for N ranks\n"
    "  --dump-config      print the effective configuration\n"
    "  --keys             print every key of a configuration: type, default, meaning\n"
    "  --help, --version\n"
    "signals: SIGUSR1 writes a checkpoint, SIGUSR2 and SIGTERM write one and stop; so does a file STOP in checkpoint.dir\n";

using namespace tfm;

// After a run was too large for a device: its plan, or what libraries and kernels' scratch memory take besides.
std::string what_fits(const Config& config, int ranks, std::int64_t available_bytes) {
  for (const std::int64_t sixteenths : {15, 12, 8}) {
    const auto fit = nearest_fit(config, ranks, available_bytes / 16 * sixteenths);
    if (!fit) break;
    if (fit->changes.empty()) continue;
    std::string text = "; this fits, with " + std::to_string(fit->bytes) + " bytes:";
    for (const std::string& change : fit->changes) text += " " + change;
    return text;
  }
  return "";
}

int run(int argc, char** argv) {
  const Arguments args(argc, argv, {{"--check", false}, {"--ranks"}, {"--dump-config", false}, {"--keys", false}});
  if (args.has("--keys")) return std::printf("%s", config_reference().c_str()), 0;
  Config config = load_config(args.only("configuration file"), args.overrides());
  if (args.has("--dump-config") && !args.has("--check")) return std::printf("%s", dump_config(config).c_str()), 0;
  if (args.has("--check")) check_trainable(config);
  if (args.has("--check") && args.has("--ranks")) {
    resolve_for_ranks(config, static_cast<int>(args.integer("--ranks", 1, 1)));
  } else {
    StopRequests requests;
    const Launch launch;
    resolve_for_ranks(config, launch.ranks);
    if (!args.has("--check")) {
      try {
        train(config, launch.mesh(layout_of(config)), make_model, launch.device(config), requests);
      } catch (const OutOfMemory& e) {
        throw Error(ExitCode::environment, e.what() + what_fits(load_config(args.only("configuration file"), args.overrides()), launch.ranks, e.available_bytes));
      }
      return 0;
    }
  }
  std::printf("%s", args.has("--dump-config") ? dump_config(config).c_str() : "configuration is valid\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return tfm::guarded(argc, argv, kHelp, run); }
