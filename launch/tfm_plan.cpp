// tfm-plan: predicts a step before launch: parameters, memory of every rank, every collective in
// order, FLOPs, time.
#include <cstdio>

#include "launch/bench/rates.h"
#include "launch/plan/output.h"
#include "launch/programs.h"
#include "launch/support/control_group.h"
#include "launch/support/program.h"
#include "plan/device_file.h"

namespace {

using namespace tfm;
constexpr const char* kHelp =
    R"(usage: tfm-plan CONFIG.yaml --ranks N [section.key=value ...] [options]
  --ranks N          number of ranks to plan for
  --device D         h200, h100, a100 (80 GB), a100-40gb, b200, l40s, cpu, or a file that describes
                     one (default: h200 if the configuration has device: cuda, otherwise cpu)
  --node N           network between the ranks of a node: nvlink3, nvlink4, nvlink5, pcie4,
                     shared-memory, or a file that describes one (default: the device's)
  --network N        network between nodes: infiniband-ndr, infiniband-hdr, ethernet-100,
                     ethernet-25, or a file that describes one (default: the device's)
  --measure          with --device cpu: measure this machine's rates, in some seconds, instead
                     of using those of a reference core
  --suggest          the five fastest layouts for the ranks that fit the device, by predicted
                     time, with the overrides that choose them, and why others are none of them
  --table            the components of the model instead: parameters, FLOPs of a step, bytes that a
                     rank keeps of a micro-batch for backward; layers that are alike in one row
  --trace            the values that forward computes in one layer of each kind instead
  --json             print JSON; with --table and --trace besides all else
  --help, --version
Needs neither MPI nor a GPU. `bytes` of a collective is the size of the whole tensor, `count`
counts consecutive equal collectives, `ring_bytes` are what a rank sends. Predicted times use the
rates and assumptions of configs/devices and configs/networks, which are built in: GPU nodes have 8
GPUs connected by NVLink. CPU ranks share the cores and memory of this machine (OMP_NUM_THREADS as in a run). With length
buckets (train.global_batch_tokens) the longest bucket is planned.
Exits with 0 also where the plan, or every layout, needs more memory than there is, as it says; with
2 where the ranks cannot run the configuration, with --suggest in no layout.
)";

// The device of that name, with the networks that --node and --network say.
plan::DeviceModel described_device(const launch::Arguments& args, const std::string& name) {
  plan::DeviceModel device = plan::load_device(name);
  if (args.has("--measure") && device.kind != config::DeviceKind::cpu)
    throw Error(ExitCode::usage,
                "--measure needs --device cpu; the rates of GPUs come from a description");
  if (args.has("--node")) device.node = plan::load_network(args.get("--node"));
  if (args.has("--network")) device.network = plan::load_network(args.get("--network"));
  return device;
}

struct Subject {
  config::Config config;
  plan::DeviceModel device;  // as described
};

// The configuration on the device that --device says, by default the one that it is for. The file
// may be a pipe, which can be read once; --device decides before, as some keys are for GPUs alone.
Subject read_subject(const launch::Arguments& args) {
  const std::string& file = args.only("configuration file");
  std::vector<std::string> overrides = args.overrides();
  if (const std::string name = args.get("--device"); !name.empty()) {
    const plan::DeviceModel device = described_device(args, name);
    overrides.push_back("device=" + config::word(device.kind));
    return {launch::load_config(file, overrides), device};
  }
  config::Config config = launch::load_config(file, overrides);
  const bool on_gpu = config.device == config::DeviceKind::cuda;
  const plan::DeviceModel device =
      described_device(args, config::word(on_gpu ? plan::Target::h200 : plan::Target::cpu));
  config.device = device.kind;
  return {config, device};
}

// For the ranks: processors are shared by them.
plan::DeviceModel device_model(plan::DeviceModel device, const launch::Arguments& args,
                               const config::Config& config, int ranks) {
  if (device.kind == config::DeviceKind::cuda) {
    if (config.tf32) device.use_tf32();
    return device;
  }
  const int cores = launch::cores_at_hand(), threads = launch::threads_of_rank(ranks);
  if (args.has("--measure")) {
    const plan::DeviceModel core = launch::measure_core(cores, ranks, threads, config.precision);
    device.wide = core.wide, device.half = core.half, device.bandwidth = core.bandwidth;
    device.rates_from = core.rates_from;
  } else if (args.get("--device", "cpu") == config::word(plan::Target::cpu)) {
    device.rates_from = "those of a reference core, not measured here; see --measure";
  }
  return plan::cpu_model(device,
                         device.memory_bytes > 0 ? device.memory_bytes : launch::host_memory(),
                         cores, ranks, threads);
}

void print(const launch::Json& j) { std::printf("%s\n", j.dump(1).c_str()); }

int run(int argc, char** argv) {
  const launch::Arguments args(argc, argv,
                               {{"--ranks"},
                                {"--device"},
                                {"--node"},
                                {"--network"},
                                {"--measure", false},
                                {"--suggest", false},
                                {"--table", false},
                                {"--trace", false},
                                {"--json", false}},
                               config::meant_key);
  for (const char* other : {"--table", "--trace"})
    if (args.has("--suggest") && args.has(other))
      throw Error(ExitCode::usage,
                  std::string(other) + " is of one layout, --suggest compares several");
  const int ranks = static_cast<int>(args.integer("--ranks", 1, 1, launch::kMostRanks));
  const auto [read, described] = read_subject(args);
  const plan::DeviceModel device = device_model(described, args, read, ranks);
  const bool json = args.has("--json");
  if (args.has("--suggest")) {
    const plan::Suggestions found = plan::suggest(read, ranks, device);
    const launch::Json j = launch::describe_suggestions(found, read, ranks, device);
    json ? print(j) : launch::print_suggestions(j);
    return static_cast<int>(found.planned > 0 ? ExitCode::ok : ExitCode::usage);
  }
  config::Config config = read;
  const plan::Choice choice = plan::choose(read, ranks, device);
  choice.layout.apply(config);
  config::resolve_for_ranks(config, ranks);
  const plan::RankPlans plans(config);
  const bool table = args.has("--table"), trace = args.has("--trace");
  if (!json && table) launch::print_table(launch::describe_table(plans));
  if (!json && trace) launch::print_trace(launch::describe_trace(plans));
  if (!json && (table || trace)) return 0;
  launch::Json j = launch::describe_plan(plans, read, choice, device);
  if (!json) return launch::print_plan(j, plans), 0;
  j["collectives"] = launch::describe_collectives(plans.first().collectives());
  if (table) j["table"] = launch::describe_table(plans);
  if (trace) j["trace"] = launch::describe_trace(plans);
  print(j);
  return 0;
}

}  // namespace

int tfm::launch::plan_main(int argc, char** argv) {
  return tfm::launch::guarded(argc, argv, kHelp, run, tfm::launch::Output::results,
                              tfm::launch::kFirstRankAlone);
}
