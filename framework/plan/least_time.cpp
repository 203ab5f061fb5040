#include "plan/least_time.h"

#include <algorithm>

#include "data/batch_shapes.h"
#include "models/abridged.h"
#include "models/stages.h"

namespace tfm::plan {
namespace {

// The plan of one stage with all blocks of `model`, which keeps everything and shares out nothing.
StepPlan plan_of_micro_batch(const config::Config& resolved, const config::ModelConfig& model) {
  const ShapePlan shape =
      divided(resolved, config::layout_of(resolved), data::batch_shapes(resolved).back());
  config::Config c = resolved;
  c.model = model;
  c.parallel.pipeline = 1;
  c.parallel.virtual_stages = 0;
  c.parallel.layers_per_stage.clear();
  c.parallel.zero = 0;
  c.recompute = config::Recompute::none;
  c.recompute_layers = 0;
  return make_step_plan(c, comm::Mesh(config::layout_of(c)), {}, shape.shape, Extent::timed);
}

// The times of the whole model's blocks. `plan`: of the short model; `like`: by block of the whole
// model, the equal one of the short model.
LeastTime::Layers layers_of(const StepPlan& plan, const std::vector<std::size_t>& like,
                            bool accumulating, const DeviceModel& device) {
  LeastTime::Layers layers;
  const std::vector<double> seconds = seconds_of_nodes(plan, plan.largest(), accumulating, device);
  std::vector<double> blocks(1 + *std::ranges::max_element(like));
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    const int block = plan.largest().training.tape->nodes()[i].scope;
    if (block >= 0) {
      blocks[static_cast<std::size_t>(block)] += seconds[i];
      layers.head = 0;
      continue;
    }
    layers.all += seconds[i];
    layers.head += seconds[i];
  }
  for (const std::size_t block : like) {
    layers.blocks.push_back(blocks[block]);
    layers.all += blocks[block];
  }
  return layers;
}

double ideal_seconds(const StepPlan& plan, const DeviceModel& device) {
  double seconds = 0;
  const graph::Program& program = plan.largest().train_program;
  const DeviceModel::Rates& rates = device.rates(plan.dtype);
  for (std::size_t i = 0; i < program.instructions().size(); ++i) {
    const graph::Work work = program.work(i);
    for (const graph::Work::Product& x : work.products)
      seconds += x.flops() / (rates.product * device.sustained);
    seconds += device.attention_seconds(
        work, program.instructions()[i].phase == graph::Phase::backward, plan.dtype);
  }
  return seconds * plan.mesh.layout.size(comm::kWorld - nn::kBatchAxes) /
         static_cast<double>(plan.largest().shape.sequences);
}

// Of labels, losses and the norm, of one objective.
double seconds_of_sums(const config::Config& c, const comm::Layout& layout,
                       const DeviceModel& device) {
  double seconds = 0;
  for (const comm::CollectiveCall& call : sums_of_step(c, layout, 1))
    seconds += device.collective_seconds(call, layout);
  return seconds;
}

}  // namespace

void LeastTime::calibrate(const StepPlan& plan) {
  ideal_ = ideal_seconds(plan, device_);
  const nn::ParameterSet& parameters = plan.model().parameters();
  for (int i = 0; i < parameters.size(); ++i) {
    const nn::ParameterSpec& spec = parameters.spec(i);
    double& elements = elements_.emplace_back(0);
    for (const nn::PartSpec& part : spec.parts)
      elements += static_cast<double>(part.rows * std::max<std::int64_t>(spec.cols, 1));
  }
  gradient_size_ = static_cast<double>(size_of(accum_type(plan.dtype)));
  parameter_size_ = static_cast<double>(size_of(plan.dtype));
}

void LeastTime::learn(const config::Config& resolved) {
  if (ideal_ == 0) calibrate(plan_of_micro_batch(resolved, resolved.model));
  const models::Abridged shorter = models::abridged(resolved.model);
  const StepPlan plan = plan_of_micro_batch(resolved, shorter.model);
  layers_[key_of(resolved, plan.largest())] = {layers_of(plan, shorter.like, false, device_),
                                               layers_of(plan, shorter.like, true, device_)};
}

const std::vector<int>& LeastTime::rank_of_block(const config::Config& c,
                                                 const comm::Layout& layout) {
  const auto [at, fresh] = stages_.try_emplace(
      {c.parallel.pipeline, c.parallel.stages_of_rank(), c.parallel.layers_per_stage});
  if (fresh) {
    const models::Stages stages(c, comm::Mesh(layout));
    for (std::int64_t block = 0; block < stages.blocks(); ++block)
      at->second.push_back(stages.rank_of_block(block));
  }
  return at->second;
}

// Of a rank with an average share of the parameters. Gradients are summed in buckets of equal size,
// with ZeRO 2 and 3 in buckets that end with layers.
LeastTime::Sizes LeastTime::sizes_of(const config::Config& c) {
  if (ideal_ == 0) learn(c);
  const comm::Layout layout = config::layout_of(c);
  const ShapePlan shape = divided(c, layout, data::batch_shapes(c).back());
  const int ranks = layout.size(comm::kWorld - nn::kBatchAxes);
  Sizes s{.ideal = ideal_ * static_cast<double>(shape.shape.sequences) / ranks,
          .layers = &layers_[key_of(c, shape)],
          .rank_of_block = &rank_of_block(c, layout),
          .micro_batches = static_cast<double>(shape.micro_batches),
          .stages = static_cast<double>(layout.size(nn::kStageAxes))};
  s.pieces = s.micro_batches * static_cast<double>(c.parallel.stages_of_rank());
  s.sums = seconds_of_sums(c, layout, device_);
  if (c.parallel.replicas * c.parallel.expert > 1) return s;
  using enum comm::Collective;
  const int shares = layout.size(nn::kModelAxes | nn::kStageAxes);
  const std::int64_t bucket = std::max<std::int64_t>(
      1, c.parallel.bucket_bytes / static_cast<std::int64_t>(gradient_size_));
  double elements = 0, by_layers = 0;
  for (const double n : elements_) {
    elements += n / shares;
    by_layers +=
        std::min(1.0, n / static_cast<double>(layout.size(nn::kModelAxes) * bucket)) / s.stages;
  }
  const double buckets =
      elements / static_cast<double>(round_up(bucket, nn::ParameterSet::kGranule * layout.world()));
  const auto seconds = [&](comm::Collective kind, double size, double calls) {
    const auto of = [&](double bytes) {
      return device_.collective_seconds({kind, nn::kTokenAxes, static_cast<std::int64_t>(bytes)},
                                        layout);
    };
    return of(elements * size) + std::max(0.0, calls - 1) * of(0);
  };
  const double gather = seconds(all_gather, parameter_size_, by_layers),
               scatter = seconds(reduce_scatter, gradient_size_, by_layers);
  s.exchanges = {{{.last = seconds(all_reduce_sum, gradient_size_, buckets)},
                  {.first = seconds(all_gather, parameter_size_, buckets),
                   .last = seconds(reduce_scatter, gradient_size_, buckets)},
                  {.first = gather, .each = scatter},
                  {.each = 2 * gather + scatter}}};
  if (sums_every_run(c, shape.micro_batches)) {
    s.exchanges[0] = {.each = seconds(all_reduce_sum, gradient_size_, by_layers)};
    s.exchanges[1] = s.exchanges[2];
  }
  return s;
}

// With the sum over stages of what a step takes on each, and the most of them, as predict() has it
// for a pipeline.
std::array<double, 4> LeastTime::seconds(const Sizes& s) const {
  const auto mean = [&](const Layers& l) { return std::max(s.ideal, l.all / s.stages); };
  std::vector<double> ranks;
  const auto most = [&](const Layers& l) {
    ranks.assign(static_cast<std::size_t>(s.stages), 0);
    for (std::size_t i = 0; i < l.blocks.size(); ++i)
      ranks[static_cast<std::size_t>((*s.rank_of_block)[i])] += l.blocks[i];
    ranks[static_cast<std::size_t>(s.rank_of_block->back())] += l.head;
    return std::max(mean(l), *std::ranges::max_element(ranks));
  };
  struct Pass {
    double first, later;
  };
  const Pass of_mean{mean(s.layers->first), mean(s.layers->later)},
      of_most{most(s.layers->first), most(s.layers->later)};
  std::array<double, 4> least{};
  for (std::size_t zero = 0; zero < least.size(); ++zero) {
    const Sizes::Exchanges& x = s.exchanges[zero];
    const auto step = [&](const Pass& p) {
      return s.micro_batches > 1 ? std::max(p.first, x.each + x.first) +
                                       (s.micro_batches - 2) * std::max(p.later, x.each) +
                                       std::max(p.later, x.each + x.last)
                                 : std::max(p.first, x.each + x.first + x.last);
    };
    const double slowest = step(of_most);
    least[zero] = slowest + (s.stages * step(of_mean) - slowest) / s.pieces + s.sums;
  }
  return least;
}

}  // namespace tfm::plan
