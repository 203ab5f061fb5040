// tfm-plan: predicts a step before launch: parameters, memory of every rank, every collective in
// order, FLOPs, time.
#include <cstdio>

#include "launch/bench/rates.h"
#include "launch/plan/output.h"
#include "launch/support/control_group.h"
#include "launch/support/program.h"

namespace {

using namespace tfm;
constexpr const char* kHelp =
    R"(usage: tfm-plan CONFIG.yaml --ranks N [section.key=value ...] [options]
  --ranks N          number of ranks to plan for
  --device D         h200, h100, a100 (80 GB), a100-40gb or cpu (default: h200 if the configuration
                     has device: cuda, otherwise cpu)
  --measure          with --device cpu: measure this machine's rates, in a second or two, instead
                     of using those of a reference core
  --suggest          the five fastest layouts for the ranks that fit the device, by predicted
                     time, with the overrides that choose them, and why others are none of them
  --json             print JSON
  --help, --version
Needs neither MPI nor a GPU. `bytes` of a collective is the size of the whole tensor, `count`
counts consecutive equal collectives, `ring_bytes` are what a rank sends. Predicted times use the
rates and assumptions in framework/plan/device_model.cpp: GPU nodes have 8 GPUs connected by NVLink;
CPU ranks share the cores and memory of this machine (OMP_NUM_THREADS as in a run). With length
buckets (train.global_batch_tokens) the longest bucket is planned.
)";

plan::DeviceModel device_model(plan::Target target, const config::Config& config, int ranks,
                               bool measure) {
  if (target != plan::Target::cpu) {
    plan::DeviceModel gpu = plan::gpu_model(target);
    if (config.tf32) gpu.use_tf32();
    return gpu;
  }
  const int cores = launch::cores_at_hand();
  plan::DeviceModel cpu = plan::cpu_model(
      measure ? launch::measure_core(cores, config.precision) : plan::reference_core(),
      launch::host_memory(), cores, ranks, launch::threads_of_rank(ranks));
  cpu.rates_from = measure ? "measured here just now; links assumed"
                           : "those of a reference core, not measured here; see --measure";
  return cpu;
}

// The configuration and the model of the device to plan for.
std::pair<config::Config, plan::Target> configuration(const launch::Arguments& args) {
  const std::string& file = args.only("configuration file");
  const std::string name = args.get("--device");
  std::optional<plan::Target> target = config::value_of<plan::Target>(name);
  if (args.has("--device") && !target) {
    std::string known;
    for (const std::string_view word : words(plan::Target{}))
      known += (known.empty() ? "" : ", ") + std::string(word);
    throw Error(ExitCode::usage, "--device '" + name + "': expected one of " + known);
  }
  std::vector<std::string> overrides = args.overrides();
  if (!target)
    target = launch::load_config(file, overrides).device == config::DeviceKind::cuda
                 ? plan::Target::h200
                 : plan::Target::cpu;
  const bool cpu = target == plan::Target::cpu;
  if (args.has("--measure") && !cpu)
    throw Error(ExitCode::usage,
                "--measure needs --device cpu; the rates of GPUs come from a table");
  overrides.push_back(cpu ? "device=cpu" : "device=cuda");
  return {launch::load_config(file, overrides), *target};
}

void print(const launch::Json& j) { std::printf("%s\n", j.dump(1).c_str()); }

int run(int argc, char** argv) {
  const launch::Arguments args(
      argc, argv,
      {{"--ranks"}, {"--device"}, {"--measure", false}, {"--suggest", false}, {"--json", false}});
  const int ranks = static_cast<int>(args.integer("--ranks", 1, 1));
  const auto [read, target] = configuration(args);
  const plan::DeviceModel device = device_model(target, read, ranks, args.has("--measure"));
  const bool json = args.has("--json");
  if (args.has("--suggest")) {
    const launch::Json j =
        launch::describe_suggestions(plan::suggest(read, ranks, device), read, ranks, device);
    json ? print(j) : launch::print_suggestions(j);
    return 0;
  }
  config::Config config = read;
  const plan::Choice choice = plan::choose(read, ranks, device);
  choice.set(config);
  config::resolve_for_ranks(config, ranks);
  const plan::RankPlans plans(config);
  launch::Json j = launch::describe_plan(plans, read, choice, device);
  if (!json) return launch::print_plan(j, plans), 0;
  j["collectives"] = launch::describe_collectives(plans.first());
  print(j);
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return tfm::launch::guarded(argc, argv, kHelp, run); }
