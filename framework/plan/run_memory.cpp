#include "plan/run_memory.h"

#include <algorithm>

namespace tfm::plan {
namespace {

// Of the rule, and of its kernels behind that.
std::int64_t rule_memory(const StepPlan& p) {
  const std::shared_ptr<const optim::Rule> kept = optimizer_of(p).rule;
  const optim::Rule& rule = *kept;
  const nn::ParameterSet& parameters = p.model().parameters();
  const std::int64_t workspace = rule.workspace_bytes(parameters, p.mesh.layout, p.dtype),
                     scratch = p.on_host() ? 0 : rule.scratch_bytes(parameters);
  return workspace + (scratch > 0 ? device::scratch_piece(1) + scratch : 0);
}

// Of one program at a time, and of the update.
std::int64_t activation_bytes(const StepPlan& p) {
  std::int64_t most = p.translator ? whole_parameters(p).bytes() + p.translation_bytes : 0;
  for (const ShapePlan& s : p.shapes)
    most = std::max({most, s.train_program.arena_bytes(), s.evaluation.program().arena_bytes()});
  return std::max(most, rule_memory(p));
}

std::int64_t load_elements(const StepPlan& p) {
  const nn::Recording& training = p.largest().training;
  std::int64_t n = 0;
  for (const graph::Value load : training.router_terms.loads)
    n += training.tape->info(load).shape.elements();
  return n;
}

std::int64_t elements_of(const StepPlan& p, bool sharded) {
  return sharded ? p.shards().elements : p.model().parameters().flat_elements();
}

optim::FlatBuffers lay_out_flat(const StepPlan& p, device::Arena& arena) {
  const optim::OptimizerOptions options = optimizer_of(p);
  const nn::ParameterSet& parameters = p.model().parameters();
  const auto accum_bytes = size_of(accum_type(p.dtype));
  const optim::ShardLayout& shards = p.shards();
  const std::int64_t owned = shards.elements * accum_bytes;
  optim::FlatBuffers flat{};
  flat.sharded = options.sharded;
  flat.parameters =
      arena.take(kParameters, elements_of(p, flat.sharded.parameters) * size_of(p.dtype));
  if (const std::int64_t n = optim::lending_elements(p.buckets(), parameters);
      flat.sharded.parameters && n > 0)
    flat.lent_parameters = arena.take(kParameters, n * size_of(p.dtype));
  if (const std::int64_t n = parameters.borrowed_elements(); n > 0) {
    flat.borrowed_parameters = arena.take(kParameters, n * size_of(p.dtype));
  }
  if (shards.state_elements > 0)
    flat.state = arena.take(kOptimizer, shards.state_elements * accum_bytes);
  if (is_half(p.dtype)) flat.master = arena.take(kMaster, shards.elements * master_bytes(p.dtype));
  if (options.ema > 0) flat.average = arena.take(kAverage, owned);
  return flat;
}

}  // namespace

WholeParameters whole_parameters(const StepPlan& p) {
  const auto bytes = [&](const nn::Model& m) {
    return round_up(m.parameters().flat_elements() * size_of(p.dtype), 64);
  };
  WholeParameters whole;
  if (p.sharded().parameters) whole.own = bytes(p.model());
  if (p.translator && p.mesh.layout.size(nn::kStageAxes) > 1) whole.model = bytes(*p.translator);
  return whole;
}

void lay_out_work(const StepPlan& p, device::Arena& work, RunMemory& m) {
  const auto bytes = size_of(accum_type(p.dtype));
  if (const std::int64_t n = p.model().parameters().borrowed_elements(); n > 0)
    m.flat.borrowed_gradients = work.take(kGradients, n * bytes);
  // The last, as programs have activations from there on (graph::PlanOptions::gradients_in_front).
  m.flat.gradients = work.take(kGradients, elements_of(p, m.flat.sharded.gradients) * bytes);
  m.activations = work.take_span<std::byte>(kActivations, activation_bytes(p));
  m.flat.workspace = m.activations.data();
}

std::int64_t work_bytes(const StepPlan& p) {
  device::Arena work;
  RunMemory m{.flat = {.sharded = p.sharded()}};
  lay_out_work(p, work, m);
  return work.taken().total();
}

RunMemory lay_out(const StepPlan& p, device::Arena& arena, device::Arena& work,
                  device::Arena& staging) {
  device::Arena& host = p.on_host() ? arena : staging;
  RunMemory m{.flat = lay_out_flat(p, arena)};
  lay_out_work(p, work, m);
  const std::int64_t loads = load_elements(p);
  m.host.resize(p.on_host() ? 1 : 2);
  for (RunMemory::Host& h : m.host) {
    for (const auto& [field, elements] : p.batch_elements())
      h.batch[field] = host.take_span<std::int32_t>(kBatch, elements);
    h.numbers = host.take_span<StepNumbers>(kBatch, p.most_micro_batches());
    h.outcome = host.take_span<StepOutcome>(kBatch, 1).data();
    h.loads = host.take_span<double>(kBatch, loads);
  }
  m.numbers = arena.take_span<StepNumbers>(kBatch, 1).data();
  m.outcome = arena.take_span<StepOutcome>(kBatch, 1).data();
  m.loads = arena.take_span<double>(kBatch, loads);
  for (const auto& [name, bytes] : p.leaves(graph::Role::input))
    m.leaves[name] = arena.take(kBatch, bytes);
  for (const auto& [name, bytes] : p.leaves(graph::Role::constant))
    m.leaves[name] = arena.take(kConstants, bytes);
  return m;
}

}  // namespace tfm::plan
