// tfm-doctor: says what is wrong with a machine or a cluster before a run does.
#include <cstdio>

#include "launch/doctor/doctor.h"
#include "launch/programs.h"
#include "launch/support/automatic.h"
#include "launch/support/control_group.h"
#include "launch/support/device_choice.h"

namespace {

constexpr const char* kHelp =
    R"(usage: [mpirun -np N] tfm-doctor [CONFIG.yaml] [section.key=value ...] [options]
  --bandwidth X      gigabytes per second that two nodes should exchange at least (default: 0.1)
  --latency X        microseconds that a message between two nodes should take at most (default:
                     1000)
  --timeout X        seconds that a rank may wait for another before that is an error (default: 60)
  --json             print JSON
  --help, --version
Start it as the run will be started, with the same launcher, hosts, ranks and environment. Looks at
ranks per node, cores and bindings, devices, the transport of tensors, every pair of nodes, every
axis, clocks, and the speed of each rank; with a configuration also at memory, checkpoint directory,
data on every node and metrics, without writing any. Takes some seconds and trains nothing.
Exits with 0 if nothing is wrong, with 2 if the command line or the configuration is wrong on all
ranks, with 3 if only data is missing or unreadable, otherwise with 4.
)";

using namespace tfm;

// Configuration of this rank, resolved for this launch; none where the command line names no file.
std::optional<config::Config> read_config(const launch::Arguments& args,
                                          const launch::Launch& launch,
                                          const std::vector<launch::RankGpus>& gpus) {
  if (args.positional().empty() && args.overrides().empty()) return {};
  config::Config config = launch::load_config(args.only("configuration file"), args.overrides());
  config.device = choose_device(config, gpus).device;
  if (config.device != config::DeviceKind::cuda)
    plan::choose(config, launch.ranks, launch::host_model(launch, launch::host_memory()))
        .layout.apply(config);
  config::resolve_for_ranks(config, launch.ranks);
  return config;
}

void examine(const launch::Examination& e, const launch::Arguments& args,
             const launch::Expected& expected) {
  if (!launch::check_launch(e)) return;
  std::optional<config::Config> config;
  const std::vector<launch::RankGpus> gpus = launch::gpus_of_ranks(e.launch);
  const auto unreadable = launch::error_of([&] { config = read_config(args, e.launch, gpus); });
  const auto errors = e.launch.gather(unreadable ? 1 : 0);
  if (std::ranges::find(errors, 0) == errors.end()) throw *unreadable;
  if (!launch::check_settings(e, config ? &*config : nullptr, unreadable)) return;
  const bool given = config.has_value();
  if (!given) config.emplace().parallel.data = e.launch.ranks;
  const bool on_gpu = config->device == config::DeviceKind::cuda;
  if (on_gpu) e.launch.take_cores_near_gpus();
  launch::check_cores(e, on_gpu);
  launch::check_network(e, expected);
  launch::check_device_and_axes(e, *config);
  if (!given) return;
  launch::check_memory(e, *config);
  launch::check_checkpoints(e, *config);
  launch::check_data(e, *config);
  launch::check_metrics(e, *config);
}

int run(int argc, char** argv) {
  const launch::Arguments args(argc, argv,
                               {{"--bandwidth"}, {"--latency"}, {"--timeout"}, {"--json", false}},
                               config::meant_key);
  const launch::Expected expected{args.real("--latency", 1000) * 1e-6,
                                  args.real("--bandwidth", 0.1) * 1e9};
  launch::Patience patience(static_cast<double>(args.integer("--timeout", 60, 1)));
  patience.wait_for("MPI to start on all ranks",
                    "the nodes may not reach each other: check firewalls and the interface (Open "
                    "MPI: --mca btl_tcp_if_include and oob_tcp_if_include)");
  launch::Launch launch(false);
  patience.wait_for("the other ranks", "look at the ranks that say nothing");
  const std::vector<launch::Node> nodes = launch::nodes_of(launch);
  launch::Findings findings(launch);
  examine({launch, nodes, patience, findings}, args, expected);
  if (launch.rank() == 0)
    args.has("--json")
        ? static_cast<void>(
              std::printf("%s\n", findings.json()
                                      .dump(1, ' ', false, nlohmann::json::error_handler_t::replace)
                                      .c_str()))
        : findings.print();
  return findings.exit_code();
}

}  // namespace

int tfm::launch::doctor_main(int argc, char** argv) {
  return tfm::launch::guarded(argc, argv, kHelp, run);
}
