// How large a model tfm-verify --as-run takes.
#include <algorithm>

#include "verify/as_run.h"
#include "verify/reference_step.h"

namespace tfm::verify {
namespace {

// Of one rank, without the device's memory.
std::int64_t host_bytes(const config::Config& config, const comm::Mesh& mesh) {
  const plan::StepPlan run = plan::make_step_plan(config, mesh),
                       reference = plan::make_step_plan(ReferenceStep::configuration(config),
                                                        comm::single_mesh(), DType::f64);
  const std::int64_t whole = reference.model().parameters().flat_elements(),
                     local = run.model().parameters().flat_elements();
  // Gradients and weights of the reference; four copies of this rank's, in float64.
  return reference.memory.total() + 3 * 8 * whole + 4 * 8 * local +
         (run.on_host() ? run.memory.total() : run.staging.total());
}

}  // namespace

AsRunSize as_run_size(const config::Config& config, const comm::Mesh& mesh,
                      std::int64_t available) {
  std::int64_t least = -available;
  mesh.world().all_reduce({&least, DType::i64, {1}}, comm::Collective::all_reduce_max);
  AsRunSize size{.config = config, .available = -least};
  config::Config& c = size.config;
  c.eval.every = 0;
  const std::int64_t part = c.train.micro_batch_size * c.parallel.data;
  c.train.global_batch_size = std::min(c.train.global_batch_size, 2 * part);
  const config::ModelConfig& m = config.model;
  for (const auto& stack : m.stacks())
    size.configured = std::max<std::int64_t>(size.configured, std::ssize(stack));
  const auto with_layers = [&](std::int64_t layers) {
    c.model = m;
    c.model.shorten(layers);
    c.parallel.layers_per_stage = config.parallel.layers_per_stage;
    if (c.model.total_layers() != m.total_layers()) c.parallel.layers_per_stage.clear();
    size.layers = layers;
    size.bytes = host_bytes(c, mesh);
    mesh.world().all_reduce({&size.bytes, DType::i64, {1}}, comm::Collective::all_reduce_max);
    return size.bytes;
  };
  if (with_layers(size.configured) <= size.available) return size;
  // One of each stack and stage is tried whether it fits or not.
  const std::int64_t stages = c.parallel.pipeline * c.parallel.stages_of_rank();
  const auto blocks = [&m](std::int64_t layers) {
    config::ModelConfig shorter = m;
    shorter.shorten(layers);
    return shorter.total_layers();
  };
  std::int64_t fits = 1, too_many = size.configured;
  while (blocks(fits) < stages) ++fits;
  while (too_many - fits > 1) {
    const std::int64_t middle = (fits + too_many) / 2;
    (with_layers(middle) <= size.available ? fits : too_many) = middle;
  }
  with_layers(fits);
  return size;
}

}  // namespace tfm::verify
