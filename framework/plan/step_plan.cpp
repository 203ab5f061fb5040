#include "plan/step_plan.h"

#include <xxhash.h>

#include <algorithm>
#include <numeric>

#include "data/batch_shapes.h"
#include "data/objective.h"
#include "inference/totals.h"
#include "inference/translator.h"
#include "models/registry.h"
#include "ops/fusion.h"
#include "plan/run_memory.h"

namespace tfm::plan {
namespace {

graph::Recompute recompute_of(config::Recompute recompute) {
  switch (recompute) {
    case config::Recompute::none:
      return graph::Recompute::none;
    case config::Recompute::selective:
      return graph::Recompute::selective;
    case config::Recompute::full:
      return graph::Recompute::full;
    case config::Recompute::automatic:
      break;
  }
  internal_error("unhandled enum value");
}

int recompute_scopes(const config::Config& c) {
  return c.recompute_layers > 0 ? static_cast<int>(c.recompute_layers)
                                : graph::PlanOptions{}.recompute_scopes;
}

template <class F>
void each_recording(const StepPlan& p, F&& f) {
  for (const ShapePlan& s : p.shapes)
    for (const nn::Recording* r : {&s.training, &s.evaluation.recording()})
      if (r->tape) f(s, *r);
}

// Of all shapes, a step's and an evaluation's.
template <class F>
void each_collective(const StepPlan& p, F&& f) {
  for (const ShapePlan& s : p.shapes)
    for (const auto& calls :
         {p.collectives(s),
          p.evaluation_collectives(s, s.shape.sequences * p.mesh.layout.size(nn::kBatchAxes))})
      std::ranges::for_each(calls, f);
}

// A group of one rank exchanges nothing.
void leave_out_single(std::vector<comm::CollectiveCall>& calls, const comm::Layout& layout) {
  std::erase_if(calls, [&](const comm::CollectiveCall& c) { return layout.size(c.axes) == 1; });
}

std::vector<graph::BucketUse> bucket_uses(const StepPlan& p, int zero) {
  using enum comm::Collective;
  const graph::Sharded sharded = p.sharded();
  const auto gradient = size_of(accum_type(p.dtype)), parameter = size_of(p.dtype);
  std::vector<graph::BucketUse> all;
  for (const optim::Bucket& b : p.buckets()) {
    graph::BucketUse& use = all.emplace_back();
    use.begin = b.begin;
    use.elements = b.end - b.begin;
    for (const int i : b.parameters)
      use.members.push_back({i, p.model().parameters().offset(i) - b.begin});
    use.reduce = {all_reduce_sum, b.axes, use.elements * gradient, comm::Purpose::gradients};
    if (zero > 0) use.reduce.kind = reduce_scatter, use.reduce.axes = b.shared;
    if (const comm::AxisSet across = b.axes - b.shared; zero > 0 && p.mesh.layout.size(across) > 1)
      use.across = {all_reduce_sum, p.mesh.layout.group_of(across),
                    div_exact(use.elements, p.mesh.layout.size(b.shared)) * gradient,
                    comm::Purpose::gradients};
    if (sharded.parameters || optim::gathered_by_step(b, p.model().parameters(), zero))
      use.gather = {all_gather, b.shared, use.elements * parameter, comm::Purpose::parameters};
  }
  return all;
}

void draft_training(const StepPlan& p, ShapePlan& s) {
  const int zero = static_cast<int>(p.config.parallel.zero);
  s.passes =
      schedule(p.mesh.layout, p.mesh.rank(), s.micro_batches, p.config.parallel.stages_of_rank());
  s.training = p.model().record_loss(s.shape, p.dtype, true);
  graph::PlanOptions train{.recompute = recompute_of(p.config.recompute),
                           .recompute_scopes = recompute_scopes(p.config),
                           .outputs = s.training.outputs(),
                           .buckets = bucket_uses(p, zero),
                           .sharded = p.sharded(),
                           .device = !p.on_host(),
                           .overlap = !p.on_host(),
                           .slots = slots(s.passes),
                           .draft = true};
  if (!p.on_host()) train.fusions = ops::fusions();
  if (train.slots == 0 && s.micro_batches == 1 && train.sharded.summed == graph::Summed::at_last)
    train.gradients_in_front =
        p.model().parameters().flat_elements() * size_of(accum_type(p.dtype));
  s.train_program = graph::plan(s.training.tape, train);
}

void plan_evaluation(const StepPlan& p, ShapePlan& s) {
  const int zero = static_cast<int>(p.config.parallel.zero);
  inference::ForwardPass::Options evaluation{.device = !p.on_host()};
  if (p.sharded().parameters) evaluation.buckets = bucket_uses(p, zero);
  for (graph::BucketUse& b : evaluation.buckets) b.reduce = b.across = {};
  s.evaluation = inference::ForwardPass::loss(p.model(), s.shape, p.dtype, evaluation);
}

std::shared_ptr<const ParameterPlan> plan_parameters(const StepPlan& p) {
  auto made = std::make_shared<ParameterPlan>(models::make_model(p.config, p.mesh));
  const nn::ParameterSet& parameters = made->model->parameters();
  const auto bytes = size_of(accum_type(p.dtype));
  made->buckets = optim::make_buckets(
      parameters, p.mesh.layout, std::max<std::int64_t>(1, p.config.parallel.bucket_bytes / bytes));
  const optim::OptimizerOptions options = optimizer_of(p);
  made->shards =
      optim::shard_layout(parameters, p.mesh, *options.rule, options.zero, made->buckets);
  return made;
}

void plan_memory(StepPlan& p) {
  device::Arena memory, work, staging;
  lay_out(p, memory, work, staging);
  p.memory = memory.taken();
  for (const auto& [category, bytes] : work.taken().categories) p.memory.add(category, bytes);
  p.staging = staging.taken();
}

}  // namespace

ShapePlan divided(const config::Config& c, const comm::Layout& layout, nn::BatchShape shape) {
  ShapePlan s{.batch = shape.sequences, .shape = shape};
  s.shape.expert_bound = c.parallel.expert_bound;
  const std::int64_t each = ceil_div(s.batch, layout.size(nn::kBatchAxes));
  if (c.train.global_batch_tokens == 0) {
    s.shape.sequences = c.train.micro_batch_size;
    s.micro_batches = div_exact(each, s.shape.sequences);
    return s;
  }
  // Whole rows of every rank under sequence parallelism.
  const std::int64_t shards = layout.size(nn::kModelAxes),
                     length = Rows{1, shape.length, shape.share}.tokens(),
                     step = c.parallel.sequence ? shards / std::gcd(shards, length) : 1;
  const std::int64_t most = c.train.counts_tokens()
                                ? std::max<std::int64_t>(1, c.train.micro_batch() / shape.length)
                                : c.train.micro_batch();
  // A pipeline's stages wait for each other less where there are several for each.
  const std::int64_t stages = layout.size(nn::kStageAxes),
                     least = stages > 1 ? std::min(each, 4 * stages) : 1;
  const std::int64_t n = std::max(ceil_div(each, most), least),
                     fewer = std::max(step, each / n / step * step);
  const auto time = [&](std::int64_t sequences) {  // of the pipeline, in sequences of a stage
    return (ceil_div(each, sequences) + stages - 1) * sequences;
  };
  s.shape.sequences = round_up(ceil_div(each, n), step);
  if (stages > 1 && time(fewer) < time(s.shape.sequences)) s.shape.sequences = fewer;
  s.micro_batches = ceil_div(each, s.shape.sequences);
  return s;
}

DType dtype_of(config::Precision precision) {
  switch (precision) {
    case config::Precision::fp32:
      return DType::f32;
    case config::Precision::bf16:
      return DType::bf16;
    case config::Precision::fp16:
      return DType::f16;
  }
  internal_error("unhandled enum value");
}

optim::Schedule schedule_of(const config::Config& c) {
  const bool wsd = c.schedule.type == config::ScheduleType::wsd;
  return {.type = c.schedule.type,
          .lr = c.optimizer.lr,
          .min_lr = c.schedule.min_lr,
          .warmup = c.schedule.warmup_steps,
          .total = !wsd && c.schedule.decay_steps > 0 ? c.schedule.decay_steps : c.train.steps,
          .decay = wsd ? c.schedule.decay_steps : 0,
          .d_model = c.model.d_model};
}

optim::OptimizerOptions optimizer_of(const StepPlan& p) {
  const config::Config& c = p.config;
  config::OptimizerConfig optimizer = c.optimizer;
  optimizer.lr = schedule_of(c).peak();  // which with noam lr is not
  return {.rule = optim::make_rule(optimizer),
          .load_rule = optim::make_load_rule(c.model.router_loss.rate),
          .grad_clip = c.optimizer.grad_clip,
          .zero = static_cast<int>(c.parallel.zero),
          .sharded = p.sharded(),
          .ema = c.optimizer.ema};
}

comm::DeviceMeshOptions mesh_options(const config::Config& c) {
  return {c.parallel.backend, static_cast<double>(c.parallel.timeout), {}};
}

comm::DeviceMeshOptions mesh_options(const StepPlan& plan) {
  comm::DeviceMeshOptions options = mesh_options(plan.config);
  options.channels = plan.channels();
  return options;
}

bool packs_rows(const config::Config& c) {
  return c.device == config::DeviceKind::cuda &&
         data::objective_of(c.data.train).labelled(c.data.train) < 1;
}

std::int64_t StepPlan::most_micro_batches() const {
  std::int64_t most = 0;
  for (const ShapePlan& s : shapes) most = std::max(most, s.micro_batches);
  return most;
}

bool sums_every_run(const config::Config& c, std::int64_t micro_batches) {
  return c.numerics == config::Numerics::deterministic && micro_batches > 1;
}

graph::Sharded StepPlan::sharded() const {
  return optim::sharded_by(static_cast<int>(config.parallel.zero),
                           sums_every_run(config, most_micro_batches()));
}

std::map<std::string, std::int64_t> StepPlan::leaves(graph::Role role) const {
  std::map<std::string, std::int64_t> bytes;
  each_recording(*this, [&](const ShapePlan&, const nn::Recording& r) {
    for (const graph::ValueInfo& v : r.tape->values())
      if (v.role == role) bytes[v.name] = std::max(bytes[v.name], v.bytes());
  });
  return bytes;
}

std::map<Field, std::int64_t> StepPlan::batch_elements() const {
  std::map<Field, std::int64_t> elements;
  each_recording(*this, [&](const ShapePlan& s, const nn::Recording& r) {
    for (const Field field : r.fields)
      elements[field] =
          std::max(elements[field], s.sequences_per_rank() * s.shape.own_width(field));
  });
  return elements;
}

double StepPlan::matmul_flops(const ShapePlan& shape) const {
  double f = 0;
  for (const graph::Node& n : shape.training.tape->nodes())
    f += 3 * n.op->work(graph::Phase::forward).flops();
  return f * static_cast<double>(shape.micro_batches);
}

double StepPlan::nominal_flops() const {
  double masked = 0;
  for (const graph::Node& n : largest().training.tape->nodes())
    masked += 3 * n.op->work(graph::Phase::forward).masked_flops;
  return matmul_flops() + masked * static_cast<double>(largest().micro_batches);
}

std::vector<comm::CollectiveCall> sums_of_step(const config::Config& config,
                                               const comm::Layout& layout,
                                               std::int64_t objectives) {
  using enum comm::Collective;
  std::vector<comm::CollectiveCall> all{over_objectives(all_reduce_sum, layout, objectives)};
  if (packs_rows(config)) all.push_back(over_objectives(all_reduce_max, layout, objectives));
  all.push_back(optim::sum_of_norm());
  all.push_back(all.front());
  return all;
}

std::vector<comm::CollectiveCall> StepPlan::collectives(const ShapePlan& shape) const {
  std::vector<comm::CollectiveCall> all;
  all.push_back(sum_of_objectives());  // labels
  if (packs_rows(config)) all.push_back(most_labels());
  for (const Pass& pass : shape.passes)
    std::ranges::copy(
        shape.train_program.collectives({pass.micro_batch == 0, pass.last}, pass.section),
        std::back_inserter(all));
  all.push_back(optim::sum_of_norm());
  std::ranges::copy(optim::update_collectives(model().parameters(), mesh.layout,
                                              optimizer_of(*this), buckets(), dtype),
                    std::back_inserter(all));
  all.push_back(sum_of_objectives());  // losses
  leave_out_single(all, mesh.layout);
  return all;
}

std::vector<comm::CollectiveCall> StepPlan::evaluation_collectives(const ShapePlan& shape,
                                                                   std::int64_t sequences) const {
  std::vector<comm::CollectiveCall> all =
      optim::gather_collectives(model().parameters(), optimizer_of(*this), buckets(), dtype);
  const std::int64_t runs =
      ceil_div(sequences, shape.shape.sequences * mesh.layout.size(nn::kBatchAxes));
  for (std::int64_t run = 0; run < runs; ++run)
    std::ranges::copy(shape.evaluation.program().collectives({}), std::back_inserter(all));
  std::ranges::copy(inference::Totals::collectives(nn::loss_axes(mesh.layout)),
                    std::back_inserter(all));
  leave_out_single(all, mesh.layout);
  return all;
}

std::uint64_t StepPlan::collective_hash() const {
  std::vector<std::int64_t> words;
  each_collective(*this, [&](const comm::CollectiveCall& c) {
    words.insert(words.end(), {static_cast<std::int64_t>(c.kind),
                               static_cast<std::int64_t>(c.axes.bits()), c.bytes, c.peer, c.tag});
  });
  return XXH3_64bits(words.data(), words.size() * sizeof words[0]);
}

std::set<comm::Channel> StepPlan::channels() const {
  std::set<comm::Channel> all;
  const int own = mesh.place(nn::kStageAxes);
  each_collective(*this, [&](const comm::CollectiveCall& c) {
    if (c.kind == comm::Collective::send) all.insert({own, c.peer, c.tag});
    if (c.kind == comm::Collective::receive) all.insert({c.peer, own, c.tag});
  });
  return all;
}

StepPlan make_step_plan(const config::Config& config, const comm::Mesh& mesh,
                        std::optional<DType> dtype, const std::optional<nn::BatchShape>& only,
                        Extent extent, std::shared_ptr<const ParameterPlan> parameters) {
  StepPlan p{.config = config, .mesh = mesh, .dtype = dtype.value_or(dtype_of(config.precision))};
  p.parameters = parameters ? std::move(parameters) : plan_parameters(p);
  p.translates = config.eval.every > 0 && config.eval.translates() && !only;
  const auto on_this_rank = [&](nn::BatchShape shape) {
    shape.share = {mesh.layout.size(nn::kSequenceAxes), mesh.place(nn::kSequenceAxes)};
    return shape;
  };
  if (only)
    p.shapes.push_back({.batch = only->sequences * mesh.layout.size(nn::kBatchAxes),
                        .shape = on_this_rank(*only)});
  else
    for (const nn::BatchShape& shape : data::batch_shapes(config))
      p.shapes.push_back(divided(config, mesh.layout, on_this_rank(shape)));
  extend(p, extent);
  return p;
}

void add_translator(StepPlan& p) {
  if (!p.translates || p.translator) return;
  config::Config whole = p.config;
  whole.parallel.sequence = false;
  whole.parallel.pipeline = 1;
  whole.parallel.layers_per_stage.clear();
  p.translator = models::make_model(whole, p.mesh.without(nn::kStageAxes));
  p.translation_bytes = inference::translation_bytes(*p.translator, p.config.model,
                                                     inference::translation_of(p.config), p.dtype);
}

void extend(StepPlan& p, Extent extent) {
  const bool whole = extent == Extent::whole;
  if (whole) add_translator(p);
  for (ShapePlan& s : p.shapes) {
    if (extent == Extent::parameters || !(whole || &s == &p.shapes.back())) continue;
    if (!s.training.tape) draft_training(p, s);
    if (extent != Extent::timed) graph::finish(s.train_program);
    if (whole) plan_evaluation(p, s);
  }
  plan_memory(p);
}

void set_expert_bound(StepPlan& p, double bound) {
  p.config.parallel.expert_bound = bound;
  for (ShapePlan& s : p.shapes) {
    s.shape.expert_bound = bound;
    draft_training(p, s);
    graph::finish(s.train_program);
  }
  plan_memory(p);
}

}  // namespace tfm::plan
