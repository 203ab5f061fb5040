#include "launch/support/automatic.h"

#include <algorithm>

#include "core/host.h"
#include "device/memory.h"
#include "launch/support/control_group.h"
#include "launch/support/device_choice.h"
#include "plan/step_plan.h"

namespace tfm::launch {
namespace {

plan::DeviceModel model_of(const device::Device::Gpu& gpu, const config::Config& config) {
  const auto target = plan::target_of(gpu.name, gpu.memory_bytes);
  plan::DeviceModel model = plan::gpu_model(target.value_or(plan::Target::a100));
  if (config.tf32) model.use_tf32();
  if (!target) model.wide.peak = model.half.peak = 0;
  model.name = gpu.name;
  return model;
}

}  // namespace

plan::DeviceModel host_model(const Launch& launch, std::int64_t memory_bytes) {
  return plan::cpu_model(plan::reference_core(), memory_bytes, launch.cores.together,
                         launch.ranks_per_node(), launch.threads());
}

plan::DeviceModel device_model(const Launch& launch, const config::Config& config) {
  const std::int64_t here = launch.ranks_per_node();
  std::optional<device::Device::Gpu> gpu;
  if (config.device == config::DeviceKind::cuda)
    gpu = device::Device::describe_gpu(launch.local_rank());
  std::int64_t least = host_memory() / here;
  if (gpu) {  // ranks may share it
    const RankGpus host = gpus_of_ranks(launch)[static_cast<std::size_t>(rank_of_launch())];
    least = gpu->memory_bytes / ceil_div(host.ranks, host.gpus);
  }
  least = std::ranges::min(launch.gather(least));
  plan::DeviceModel model = gpu ? model_of(*gpu, config) : host_model(launch, least * here);
  model.memory_bytes = least;
  return model;
}

plan::Choice choose(const Launch& launch, config::Config& config,
                    const std::function<std::optional<plan::EarlierChoice>()>& earlier) {
  config::Config checked = config;  // an error that all ranks have
  config::resolve_for_ranks(checked, launch.ranks);
  const plan::DeviceModel device = device_model(launch, config);
  plan::Choice choice;
  if (rank_of_launch() == 0)
    choice = plan::choose(config, launch.ranks, device,
                          earlier ? earlier() : std::optional<plan::EarlierChoice>());
  choice = {.layout = launch.broadcast(choice.layout),
            .micro_batch_text = launch.broadcast(choice.micro_batch_text),
            .recompute_text = launch.broadcast(choice.recompute_text)};
  choice.layout.apply(config);
  config::resolve_for_ranks(config, launch.ranks);
  return choice;
}

std::vector<std::string> overrides_of(const config::Config& read,
                                      const plan::LayoutChoice& choice) {
  std::vector<std::string> all;
  for (const config::Change& c : plan::changes_of(read, choice)) all.push_back(c.key + "=" + c.now);
  return all;
}

PlannedMemory planned_memory(const Launch& launch, const config::Config& config) {
  const plan::StepPlan own =
      plan::make_step_plan(config, comm::Mesh(config::layout_of(config), rank_of_launch()));
  PlannedMemory planned{own.memory.total(), 0};
  const auto machines = launch.gather(machine_id());
  const auto bytes = launch.gather(planned.rank);
  for (std::size_t r = 0; r < bytes.size(); ++r)
    if (machines[r] == machine_id()) planned.host += bytes[r];
  return planned;
}

void check_memory(const Launch& launch, const config::Config& config) {
  if (config.device == config::DeviceKind::cuda) return;
  const std::int64_t bytes = planned_memory(launch, config).host;
  if (const std::int64_t memory = host_memory(); bytes > memory)
    throw device::OutOfMemory("the ranks of " + host_name() + " are planned to take " +
                                  std::to_string(bytes) + " bytes of memory, and it has " +
                                  std::to_string(memory) +
                                  "; use a smaller model or batch, or more hosts",
                              memory / launch.ranks_per_node());
}

}  // namespace tfm::launch
