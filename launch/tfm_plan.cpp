// tfm-plan: predicts a step before launch: parameters, memory of every rank, every collective in
// order, FLOPs, time.
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>
#include <tuple>

#include "launch/bench/rates.h"
#include "launch/support/program.h"
#include "models/registry.h"
#include "plan/fit.h"
#include "plan/prediction.h"

namespace {

using namespace tfm;
using Json = nlohmann::ordered_json;

constexpr const char* kHelp =
    R"(usage: tfm-plan CONFIG.yaml --ranks N [section.key=value ...] [options]
  --ranks N          number of ranks to plan for
  --device D         h200, h100, a100 (80 GB), a100-40gb or cpu (default: h200 if the configuration
                     has device: cuda, otherwise cpu)
  --measure          with --device cpu: measure this machine's rates, in a second or two, instead
                     of using those of a reference core
  --json             print JSON
  --help, --version
Needs neither MPI nor a GPU. `bytes` of a collective is the size of the whole tensor; `count`
counts consecutive equal collectives. Predicted times use the rates and assumptions in
framework/plan/device_model.cpp: GPU nodes have 8 GPUs connected by NVLink; CPU ranks share the
cores and memory of this machine (OMP_NUM_THREADS as in a run). With length buckets
(train.global_batch_tokens) the longest bucket is planned.
)";

// Plans differ only between ranks that share out layers (the last share of the vocabulary may be
// shorter).
std::vector<plan::StepPlan> plan_ranks(const config::Config& config) {
  std::vector<plan::StepPlan> plans;
  const comm::Layout layout = config::layout_of(config);
  for (const int rank : layout.group(0, nn::kModelAxes))
    plans.push_back(plan::make_step_plan(config, comm::Mesh(layout, rank)));
  return plans;
}

plan::CoreRates measured_core(int cores, const config::Config& config) {
  device::Device device = device::Device::cpu(cores);
  const auto rates = [&](DType t) {
    const launch::MeasuredRates m = launch::measure_rates(device, t);
    return std::pair{
        plan::DeviceModel::Rates{m.product / cores, m.product / cores, m.attention / cores},
        m.bandwidth / cores};
  };
  plan::CoreRates core;
  std::tie(core.wide, core.bandwidth) = rates(DType::f32);
  if (config.precision != config::Precision::fp32)
    core.half = rates(config.precision == config::Precision::bf16 ? DType::bf16 : DType::f16).first;
  return core;
}

plan::DeviceModel device_model(plan::Target target, const config::Config& config, int ranks,
                               bool measure) {
  if (target != plan::Target::cpu) {
    plan::DeviceModel gpu = plan::gpu_model(target);
    if (config.tf32) gpu.use_tf32();
    return gpu;
  }
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const std::int64_t memory = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
  return plan::cpu_model(measure ? measured_core(cores, config) : plan::reference_core(), memory,
                         cores, ranks, launch::threads_of_rank(ranks));
}

void add_collectives(const plan::StepPlan& p, Json& j) {
  Json& list = j["collectives"] = Json::array();
  for (const comm::CollectiveCall& c : p.collectives()) {
    const Json entry{{"op", comm::name_of(c.kind)},
                     {"axis", comm::name_of(c.axes)},
                     {"bytes", c.bytes},
                     {"count", 1}};
    if (!list.empty() && list.back()["op"] == entry["op"] && list.back()["axis"] == entry["axis"] &&
        list.back()["bytes"] == entry["bytes"])
      list.back()["count"] = list.back()["count"].get<std::int64_t>() + 1;
    else
      list.push_back(entry);
  }
}

Json describe(const std::vector<plan::StepPlan>& plans, int ranks) {
  const plan::StepPlan& p = plans[0];
  const plan::ShapePlan& shape = p.largest();
  Json j;
  j["parameters"] = p.model->parameters().total_elements();
  j["ranks"] = ranks;
  j["layout"] = p.mesh.layout.sizes();
  j["micro_batch_size"] = shape.shape.sequences;
  j["micro_batches"] = shape.micro_batches;
  j["shape"] = {{"sequences", shape.batch},
                {"length", shape.shape.length},
                {"source_length", shape.shape.source_length},
                {"shapes", p.shapes.size()}};
  for (int r = 0; r < ranks; ++r) {
    const plan::StepPlan& of =
        plans[static_cast<std::size_t>(p.mesh.layout.place(r, nn::kModelAxes))];
    Json entry{
        {"rank", r}, {"total_bytes", of.memory.total()}, {"categories", of.memory.categories}};
    if (!p.on_host())
      entry["page_locked"] = {{"total_bytes", of.staging.total()},
                              {"categories", of.staging.categories}};
    j["memory"].push_back(entry);
  }
  j["activations_without_reuse_bytes"] = shape.train_program.unshared_bytes();
  add_collectives(p, j);
  double flops = 0;
  for (const plan::StepPlan& q : plans)
    flops += q.matmul_flops() * p.mesh.layout.size(nn::kBatchAxes);
  j["flops_per_step"] = flops;
  j["tokens_per_step"] = shape.batch * shape.shape.length;
  return j;
}

void add_prediction(const std::vector<plan::StepPlan>& plans, const plan::DeviceModel& device,
                    Json& j) {
  const plan::StepPlan& p = plans[0];
  const plan::DeviceModel::Rates& rates = device.rates(p.dtype);
  const plan::Prediction times = plan::predict(p, p.largest(), device);
  double nominal = 0;
  for (const plan::StepPlan& q : plans)
    nominal += q.nominal_flops() * p.mesh.layout.size(nn::kBatchAxes);
  const double seconds = times.seconds(), peak = rates.peak * p.mesh.layout.world();
  j["device"] = {{"name", device.name},
                 {"memory_bytes", device.memory_bytes},
                 {"reserve_bytes", device.reserve_bytes},
                 {"peak_flops", rates.peak},
                 {"product_flops", rates.product},
                 {"attention_flops", rates.attention},
                 {"bytes_per_second", device.bandwidth}};
  j["step_seconds"] = seconds;
  j["tokens_per_second"] = j["tokens_per_step"].get<double>() / seconds;
  j["mfu"] = j["flops_per_step"].get<double>() / seconds / peak;
  j["mfu_nominal"] = nominal / seconds / peak;
  j["limited_by"] = plan::name_of(times.limited_by());
  j["seconds"] = times.phases;
  for (int l = 0; l < plan::kLimits; ++l)
    j["seconds_by_limit"][std::string(plan::name_of(static_cast<plan::Limit>(l)))] =
        times.limits[static_cast<std::size_t>(l)];
}

void add_fit(const config::Config& config, int ranks, const plan::DeviceModel& device, Json& j) {
  std::int64_t most = 0;
  for (const Json& m : j["memory"]) most = std::max(most, m["total_bytes"].get<std::int64_t>());
  j["fits"] = most <= device.usable_bytes();
  if (j["fits"]) return;
  j["nearest_fit"] = nullptr;
  if (const auto fit = plan::nearest_fit(config, ranks, device.usable_bytes()))
    j["nearest_fit"] = {{"changes", fit->changes}, {"total_bytes", fit->bytes}};
}

double giga(const Json& bytes) { return bytes.get<double>() * 1e-9; }

void print_fit(const Json& j) {
  const Json& d = j["device"];
  std::printf(
      "\nmemory            %.1f GB per rank: %s %s (%.1f GB per rank, %.1f GB of them in "
      "reserve)\n",
      giga(j["memory"][0]["total_bytes"]), j["fits"] ? "fits" : "DOES NOT FIT",
      d["name"].get<std::string>().c_str(), giga(d["memory_bytes"]), giga(d["reserve_bytes"]));
  if (j["fits"]) return;
  if (j["nearest_fit"].is_null()) {
    std::printf(
        "                  smaller micro-batches, recompute, parallel.zero=1 or parallel.tensor do "
        "not help; use more ranks\n");
    return;
  }
  std::printf("                  it would fit with");
  for (const Json& change : j["nearest_fit"]["changes"])
    std::printf(" %s", change.get<std::string>().c_str());
  std::printf(": %.1f GB per rank\n", giga(j["nearest_fit"]["total_bytes"]));
}

void print_prediction(const Json& j) {
  std::printf("\npredicted         %.4g s per step, %.4g tokens/s, limited by %s\n",
              j["step_seconds"].get<double>(), j["tokens_per_second"].get<double>(),
              j["limited_by"].get<std::string>().c_str());
  std::printf(
      "utilization       %.1f %% of %.4g FLOP/s per rank (without masked attention), nominal %.1f "
      "%% (with it)\n",
      j["mfu"].get<double>() * 100, j["device"]["peak_flops"].get<double>(),
      j["mfu_nominal"].get<double>() * 100);
  if (j["shape"]["shapes"] > 1)
    std::printf(
        "                  for the longest of %d length buckets: %d sequences of %d tokens\n",
        j["shape"]["shapes"].get<int>(), j["shape"]["sequences"].get<int>(),
        j["shape"]["length"].get<int>());
  for (const char* part : {"seconds", "seconds_by_limit"}) {
    std::printf("%-17s", part == std::string("seconds") ? "by phase" : "by cause");
    for (const auto& [name, seconds] : j[part].items())
      std::printf(" %s %.1f %%", name.c_str(),
                  100 * seconds.get<double>() / j["step_seconds"].get<double>());
    std::printf("\n");
  }
}

void print_memory(const Json& j) {
  std::printf("\n%-6s %16s", "rank", "total bytes");
  for (const auto& [name, bytes] : j["memory"][0]["categories"].items())
    std::printf(" %16s", name.c_str());
  if (j["memory"][0].contains("page_locked")) std::printf(" %16s", "host: locked");
  for (const Json& m : j["memory"]) {
    std::printf("\n%-6d %16lld", m["rank"].get<int>(), m["total_bytes"].get<long long>());
    for (const auto& [name, bytes] : m["categories"].items())
      std::printf(" %16lld", bytes.get<long long>());
    if (m.contains("page_locked"))
      std::printf(" %16lld", m["page_locked"]["total_bytes"].get<long long>());
  }
  std::printf("\n");
}

void print_table(const Json& j) {
  std::printf("parameters        %lld\n", j["parameters"].get<long long>());
  std::printf("layout            data %d x tensor %d, micro-batch %d, %d micro-batches per step\n",
              j["layout"]["data"].get<int>(), j["layout"]["tensor"].get<int>(),
              j["micro_batch_size"].get<int>(), j["micro_batches"].get<int>());
  std::printf(
      "matrix products   %.4g FLOP per step (causal attention counts half), %lld tokens per step\n",
      j["flops_per_step"].get<double>(), j["tokens_per_step"].get<long long>());
  print_prediction(j);
  print_fit(j);
  print_memory(j);
  std::printf("\ncollectives of a step, in order\n%-16s %-8s %16s %8s\n", "operation", "axis",
              "bytes", "count");
  for (const Json& c : j["collectives"])
    std::printf("%-16s %-8s %16lld %8lld\n", c["op"].get<std::string>().c_str(),
                c["axis"].get<std::string>().c_str(), c["bytes"].get<long long>(),
                c["count"].get<long long>());
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

int run(int argc, char** argv) {
  const launch::Arguments args(
      argc, argv, {{"--ranks"}, {"--device"}, {"--measure", false}, {"--json", false}});
  const int ranks = static_cast<int>(args.integer("--ranks", 1, 1));
  const auto [read, target] = configuration(args);
  config::Config config = read;
  config::resolve_for_ranks(config, ranks);
  const plan::DeviceModel device = device_model(target, config, ranks, args.has("--measure"));
  const std::vector<plan::StepPlan> plans = plan_ranks(config);
  Json j = describe(plans, ranks);
  add_prediction(plans, device, j);
  add_fit(read, ranks, device, j);
  if (args.has("--json"))
    std::printf("%s\n", j.dump(1).c_str());
  else
    print_table(j);
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return tfm::launch::guarded(argc, argv, kHelp, run); }
