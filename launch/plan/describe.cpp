#include "launch/plan/output.h"
#include "launch/support/automatic.h"
#include "models/stages.h"
#include "plan/prediction.h"
#include "plan/traffic.h"

namespace tfm::launch {
namespace {

void add_memory(const plan::RankPlans& plans, Json& j) {
  for (int r = 0; r < plans.first().mesh.layout.world(); ++r) {
    const plan::StepPlan& of = plans.of(r);
    Json entry{
        {"rank", r}, {"total_bytes", of.memory.total()}, {"categories", of.memory.categories}};
    if (!of.on_host())
      entry["page_locked"] = {{"total_bytes", of.staging.total()},
                              {"categories", of.staging.categories}};
    j["memory"].push_back(std::move(entry));
  }
}

void add_step(const plan::RankPlans& plans, Json& j) {
  const plan::StepPlan& p = plans.first();
  const plan::ShapePlan& shape = p.largest();
  j["activations_without_reuse_bytes"] = shape.train_program.unshared_bytes();
  double flops = 0;
  plans.each([&](const plan::StepPlan& q, std::int64_t ranks) {
    flops += q.matmul_flops() * static_cast<double>(ranks);
  });
  j["flops_per_step"] = flops;
  j["tokens_per_step"] = shape.batch * shape.shape.length;
}

void add_traffic(const plan::StepPlan& p, Json& j) {
  j["traffic"] = Json::array();
  for (const plan::Traffic& t : plan::traffic(p))
    j["traffic"].push_back({{"op", comm::name_of(t.kind)},
                            {"axis", comm::name_of(t.axes)},
                            {"count", t.count},
                            {"bytes", t.bytes},
                            {"ring_bytes", t.sent}});
  j["textbook_traffic"] = Json::array();
  for (const plan::TextbookTraffic& t : plan::textbook_traffic(p)) {
    Json differences = Json::array();
    for (const auto& [why, bytes] : t.differences)
      differences.push_back({{"why", why}, {"ring_bytes", bytes}});
    j["textbook_traffic"].push_back({{"axis", t.axes},
                                     {"formula", t.formula},
                                     {"textbook_ring_bytes", t.textbook},
                                     {"ring_bytes", t.sent},
                                     {"differences", std::move(differences)}});
  }
}

void add_prediction(const plan::RankPlans& plans, const plan::DeviceModel& device, Json& j) {
  const plan::StepPlan& p = plans.first();
  const plan::Prediction times = plan::predict(plans.stages(), device);
  double nominal = 0;
  plans.each([&](const plan::StepPlan& q, std::int64_t ranks) {
    nominal += q.nominal_flops() * static_cast<double>(ranks);
  });
  const double seconds = times.seconds(), peak = device.rates(p.dtype).peak * p.mesh.layout.world();
  j["device"] = describe_device(device, p.dtype);
  j["step_seconds"] = seconds;
  j["tokens_per_second"] = j["tokens_per_step"].get<double>() / seconds;
  j["mfu"] = j["flops_per_step"].get<double>() / seconds / peak;
  j["mfu_nominal"] = nominal / seconds / peak;
  j["limited_by"] = plan::name_of(times.limited_by());
  j["seconds"] = times.phases;
  const int limits = p.mesh.layout.size(nn::kStageAxes) > 1
                         ? plan::kLimits
                         : static_cast<int>(plan::Limit::bubble);  // the last one
  for (int l = 0; l < limits; ++l)
    j["seconds_by_limit"][std::string(plan::name_of(static_cast<plan::Limit>(l)))] =
        times.limits[static_cast<std::size_t>(l)];
}

void add_fit(const config::Config& read, const plan::DeviceModel& device, Json& j) {
  std::int64_t most = 0;
  for (const Json& m : j["memory"]) most = std::max(most, m["total_bytes"].get<std::int64_t>());
  j["fits"] = most <= device.usable_bytes();
  if (j["fits"]) return;
  j["nearest_fit"] = nullptr;
  if (const auto fit = plan::nearest_fit(read, j["ranks"].get<int>(), device.usable_bytes()))
    j["nearest_fit"] = {{"changes", overrides_of(read, fit->choice)}, {"total_bytes", fit->bytes}};
}

}  // namespace

Json describe_device(const plan::DeviceModel& device, DType dtype) {
  const plan::DeviceModel::Rates& rates = device.rates(dtype);
  return {{"name", device.name},
          {"memory_bytes", device.memory_bytes},
          {"reserve_bytes", device.reserve_bytes},
          {"peak_flops", rates.peak},
          {"product_flops", rates.product},
          {"attention_flops", rates.head_64.forward.rate},
          {"sustained", device.sustained},
          {"bytes_per_second", device.bandwidth},
          {"ranks_per_node", device.ranks_per_node},
          {"node_bytes_per_second", device.node.bandwidth},
          {"network_bytes_per_second", device.network.bandwidth},
          {"rates_from", device.rates_from}};
}

Json describe_collectives(std::span<const comm::CollectiveCall> calls) {
  Json list = Json::array();
  for (std::size_t i = 0, next = 0; i < calls.size(); i = next) {
    while (next < calls.size() && calls[next] == calls[i]) ++next;
    list.push_back({{"op", comm::name_of(calls[i].kind)},
                    {"axis", comm::name_of(calls[i].axes)},
                    {"bytes", calls[i].bytes},
                    {"count", next - i}});
  }
  return list;
}

Json describe_plan(const plan::RankPlans& plans, const config::Config& read,
                   const plan::Choice& choice, const plan::DeviceModel& device) {
  const plan::StepPlan& p = plans.first();
  const plan::ShapePlan& shape = p.largest();
  Json j;
  j["parameters"] = p.model().parameters().trained_elements();
  j["ranks"] = p.mesh.layout.world();
  j["layout"] = p.mesh.layout.sizes();
  if (p.mesh.layout.size(nn::kStageAxes) > 1)
    j["layers_per_stage"] = models::Stages(p.config, p.mesh).blocks_per_stage();
  j["micro_batch_size"] = shape.shape.sequences;
  j["micro_batches"] = shape.micro_batches;
  j["recompute"] = config::word(p.config.recompute);
  if (p.config.recompute_layers > 0) j["recompute_layers"] = p.config.recompute_layers;
  j["chosen"] = Json::object();
  if (!choice.micro_batch_text.empty())
    j["chosen"]
     [p.config.train.counts_tokens() ? "train.micro_batch_tokens" : "train.micro_batch_size"] =
         choice.micro_batch_text;
  if (!choice.recompute_text.empty()) j["chosen"]["recompute"] = choice.recompute_text;
  j["shape"] = {{"sequences", shape.batch},
                {"length", shape.shape.length},
                {"source_length", shape.shape.source_length},
                {"shapes", p.shapes.size()}};
  add_memory(plans, j);
  add_step(plans, j);
  add_traffic(p, j);
  add_prediction(plans, device, j);
  add_fit(read, device, j);
  return j;
}

}  // namespace tfm::launch
