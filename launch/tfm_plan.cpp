// tfm-plan: what a step needs, before launch: parameters, memory of every rank, every collective in order, FLOPs.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "launch/support/program.h"
#include "models/registry.h"
#include "train/engine.h"

namespace {

using namespace tfm;

constexpr const char* kHelp =
    "usage: tfm-plan CONFIG.yaml --ranks N [section.key=value ...] [options]\n"
    "  --ranks N          number of ranks to plan for\n"
    "  --device cpu       the device to plan for; this version knows cpu\n"
    "  --json             for machines\n"
    "  --help, --version\n"
    "Starts no MPI and allocates nothing. `bytes` of a collective are those of the whole tensor, equal neighbours are counted.\n";

// Plans differ between tensor ranks only (the last share of the vocabulary may be shorter).
std::vector<StepPlan> plan_tensor_ranks(const Config& config) {
  std::vector<StepPlan> plans;
  const Layout layout = layout_of(config);
  for (int t = 0; t < layout.tensor; ++t) plans.push_back(make_step_plan(config, Mesh{.layout = layout, .tensor_rank = t}, make_model));
  return plans;
}

nlohmann::ordered_json describe(const std::vector<StepPlan>& plans, int ranks) {
  const StepPlan& p = plans[0];
  nlohmann::ordered_json j;
  j["parameters"] = p.model->parameters().total_elements();
  j["ranks"] = ranks;
  j["layout"] = {{"data", p.mesh.layout.data}, {"tensor", p.mesh.layout.tensor}};
  j["micro_batch_size"] = p.largest().shape.sequences;
  j["micro_batches"] = p.largest().micro_batches;
  for (int r = 0; r < ranks; ++r) {
    const MemoryPlan& m = plans[static_cast<std::size_t>(r % p.mesh.layout.tensor)].memory;
    j["memory"].push_back({{"rank", r}, {"total_bytes", m.total()}, {"categories", m.categories}});
  }
  j["activations_without_reuse_bytes"] = p.largest().train_program.unshared_bytes();
  j["collectives"] = nlohmann::json::array();
  for (const CollectiveUse& c : p.collectives()) {
    const nlohmann::ordered_json entry{{"op", name_of(c.kind)}, {"axis", name_of(c.axis)}, {"bytes", c.bytes}, {"count", c.count}};
    auto& list = j["collectives"];
    if (!list.empty() && list.back()["op"] == entry["op"] && list.back()["axis"] == entry["axis"] && list.back()["bytes"] == entry["bytes"])
      list.back()["count"] = list.back()["count"].get<std::int64_t>() + c.count;
    else
      list.push_back(entry);
  }
  double flops = 0;
  for (const StepPlan& q : plans) flops += q.matmul_flops() * p.mesh.layout.data;
  j["flops_per_step"] = flops;
  j["tokens_per_step"] = p.largest().batch * p.largest().shape.length;
  return j;
}

void print_table(const nlohmann::ordered_json& j) {
  std::printf("parameters        %lld\n", j["parameters"].get<long long>());
  std::printf("layout            data %d x tensor %d, micro-batch %d, %d micro-batches a step\n", j["layout"]["data"].get<int>(),
              j["layout"]["tensor"].get<int>(), j["micro_batch_size"].get<int>(), j["micro_batches"].get<int>());
  std::printf("matrix products   %.4g FLOP a step (causal attention counted by half), %lld tokens a step\n", j["flops_per_step"].get<double>(),
              j["tokens_per_step"].get<long long>());
  std::printf("\n%-6s %16s", "rank", "total bytes");
  for (const auto& [name, bytes] : j["memory"][0]["categories"].items()) std::printf(" %16s", name.c_str());
  for (const auto& m : j["memory"]) {
    std::printf("\n%-6d %16lld", m["rank"].get<int>(), m["total_bytes"].get<long long>());
    for (const auto& [name, bytes] : m["categories"].items()) std::printf(" %16lld", bytes.get<long long>());
  }
  std::printf("\n\ncollectives of a step, in order\n%-16s %-8s %16s %8s\n", "operation", "axis", "bytes", "count");
  for (const auto& c : j["collectives"])
    std::printf("%-16s %-8s %16lld %8lld\n", c["op"].get<std::string>().c_str(), c["axis"].get<std::string>().c_str(), c["bytes"].get<long long>(),
                c["count"].get<long long>());
}

int run(int argc, char** argv) {
  const Arguments args(argc, argv, {{"--ranks"}, {"--device"}, {"--json", false}});
  if (args.get("--device", "cpu") != "cpu")
    throw Error(ExitCode::usage, "--device " + args.get("--device") + " is not known to this version; expected cpu");
  const int ranks = static_cast<int>(args.integer("--ranks", 1, 1));
  Config config = load_config(args.only("configuration file"), args.overrides());
  resolve_for_ranks(config, ranks);
  const auto j = describe(plan_tensor_ranks(config), ranks);
  if (args.has("--json"))
    std::printf("%s\n", j.dump(1).c_str());
  else
    print_table(j);
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return tfm::guarded(argc, argv, kHelp, run); }
