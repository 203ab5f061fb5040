#include "plan/suggest.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "plan/choose.h"
#include "plan/rank_plans.h"

namespace tfm::plan {
namespace {

class Search {
 public:
  Search(const Layouts& layouts, const DeviceModel& device, std::size_t most)
      : layouts_(layouts), device_(device), most_(most) {}

  void grid(const Layouts::Grid& g) {
    if (!g.refusal.empty()) return refuse(g.refusal);
    for (const Layouts::Grid& order : layouts_.schedules(g)) {
      if (!order.refusal.empty()) {
        refuse(order.refusal);
        continue;
      }
      const std::vector<config::Config> stages = layouts_.zero_stages(order);
      if (full() && all_bounded(order.config, std::ssize(stages))) continue;
      sharded_.clear();
      for (const config::Config& stage : stages) {
        kept_.clear();
        for (const config::Config& recomputes : layouts_.recomputations(stage))
          micro_batches(layouts_.micro_batches(recomputes));
      }
    }
  }

  Suggestion plan(const config::Config& read, const config::Config& resolved) {
    StagePlans plans(resolved);
    const StepPlan& p = plans.fullest();
    const ShapePlan& shape = p.largest();
    ++result.planned;
    if (ideal_ == 0) ideal_ = ideal_seconds(plans);
    if (const auto [model, fresh] = models_.try_emplace(key_of(resolved)); fresh)
      model->second = seconds_of_model(plans);
    return {.changes = layouts_.changes(read),
            .layout = p.mesh.layout,
            .sequence = resolved.parallel.sequence && p.mesh.layout.size(nn::kModelAxes) > 1,
            .exchange = resolved.parallel.context_exchange,
            .schedule = resolved.parallel.schedule,
            .zero = resolved.parallel.zero,
            .recompute = resolved.recompute,
            .micro_batch = shape.shape.sequences,
            .micro_batches = shape.micro_batches,
            .tokens = shape.batch * shape.shape.length,
            .bytes = p.memory.total(),
            .times = predict(plans.stages(), device_)};
  }

  Suggestions result;

 private:
  // Whether no size of a micro-batch can be fast enough, which does not depend on the ZeRO stage
  // and on what is recomputed. Then all are accounted for.
  bool all_bounded(const config::Config& c, std::int64_t stages) {
    std::int64_t sizes = 0;
    std::vector<std::string> refusals;
    for (const config::Config& size : layouts_.micro_batches(c)) {
      std::string refusal;
      if (const auto resolved = layouts_.resolve(size, &refusal)) {
        if (least_seconds(*resolved) <= slowest()) return false;
        ++sizes;
      } else {
        refusals.push_back(refusal);
      }
    }
    const std::int64_t variants = stages * std::ssize(layouts_.recomputations(c));
    result.bounded += sizes * variants;
    for (const std::string& r : refusals) refuse(r, variants);
    return true;
  }

  // In ascending order of their size. Memory grows with it.
  void micro_batches(const std::vector<config::Config>& sizes) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      std::string refusal;
      const auto resolved = layouts_.resolve(sizes[i], &refusal);
      if (!resolved) {
        refuse(refusal);
        continue;
      }
      // What recomputes does all that the same without does, and more.
      const auto kept = kept_.find(resolved->train.micro_batch_size);
      if (kept != kept_.end() && full() && kept->second >= slowest()) {
        ++result.no_faster;
        continue;
      }
      const auto sharded = sharded_.find(resolved->train.micro_batch_size);
      if (full() && (least_seconds(*resolved) > slowest() ||
                     (sharded != sharded_.end() && sharded->second > slowest()))) {
        ++result.bounded;
        continue;
      }
      Suggestion s = plan(sizes[i], *resolved);
      if (kept_.find(resolved->train.micro_batch_size) == kept_.end())
        sharded_[resolved->train.micro_batch_size] = seconds_sharded(s);
      kept_.try_emplace(resolved->train.micro_batch_size, s.times.seconds());
      if (const std::int64_t over = s.bytes - device_.usable_bytes(); over > 0) {
        result.too_large.add(static_cast<double>(over));
        result.larger += static_cast<std::int64_t>(sizes.size() - i - 1);
        return;
      }
      add(std::move(s));
    }
  }

  // Products and attention of a sequence at full rate, on one rank.
  double ideal_seconds(const StagePlans& plans) const {
    double seconds = 0;
    for (const StepPlan* p : plans.stages()) {
      const graph::Program& program = p->largest().train_program;
      const DeviceModel::Rates& rates = device_.rates(p->dtype);
      for (std::size_t i = 0; i < program.steps().size(); ++i) {
        if (program.steps()[i].phase == graph::Phase::recompute) continue;
        const graph::Work work = program.work(i);
        for (const graph::Work::Product& x : work.products)
          seconds += x.flops() / (rates.product * device_.sustained);
        seconds += device_.attention_seconds(
            work, program.steps()[i].phase == graph::Phase::backward, p->dtype);
      }
    }
    const StepPlan& first = *plans.stages().front();
    const comm::Layout& layout = first.mesh.layout;
    return seconds * layout.size(comm::kWorld - nn::kBatchAxes - nn::kStageAxes) /
           static_cast<double>(first.largest().shape.sequences);
  }

  // What micro-batches of one size cost on the ranks of a stage, whatever the pipeline, the ZeRO
  // stage and what is recomputed.
  using ModelKey =
      std::tuple<std::int64_t, std::int64_t, bool, config::ContextExchange, std::int64_t>;
  static ModelKey key_of(const config::Config& c) {
    return {c.parallel.tensor, c.parallel.context, c.parallel.sequence, c.parallel.context_exchange,
            c.train.micro_batch_size};
  }
  // A micro-batch through all stages: of the first plan of a key, which recomputes nothing and
  // shares out nothing, without sums of gradients and the update.
  double seconds_of_model(StagePlans& plans) const {
    double seconds = 0;
    std::map<const StepPlan*, double> known;
    for (const StepPlan* p : plans.stages()) {
      const auto [at, fresh] = known.try_emplace(p);
      if (fresh) {
        const Prediction times = predict(*p, p->largest(), device_);
        at->second = times.seconds();
        for (const char* phase : {"reduce", "gather", "optimizer"})
          if (const auto found = times.phases.find(phase); found != times.phases.end())
            at->second -= found->second;
      }
      seconds += at->second;
    }
    return seconds / static_cast<double>(plans.fullest().largest().micro_batches);
  }

  // What no later ZeRO stage is faster than. The first saves the update and half of a sum, which
  // becomes a scatter; the others compute the same as it, and move as much or more.
  static double seconds_sharded(const Suggestion& s) {
    const auto of = [&](const char* phase) {
      const auto at = s.times.phases.find(phase);
      return at == s.times.phases.end() ? 0 : at->second;
    };
    return s.times.seconds() - (s.zero == 0 ? of("optimizer") + of("reduce") / 2 : 0);
  }

  // What no layout of these sizes is faster than: its ranks share out the products of the batch,
  // stages a micro-batch, and a pipeline fills and drains.
  double least_seconds(const config::Config& c) const {
    if (c.train.global_batch_tokens > 0) return 0;
    const comm::Layout layout = config::layout_of(c);
    const auto batch = static_cast<double>(c.train.global_batch_size),
               micro_batches = batch / layout.size(nn::kBatchAxes) /
                               static_cast<double>(c.train.micro_batch_size),
               stages = static_cast<double>(layout.size(nn::kStageAxes)),
               pieces = micro_batches * static_cast<double>(c.parallel.stages_of_rank());
    double seconds = ideal_ * batch / layout.world();
    if (const auto model = models_.find(key_of(c)); model != models_.end())
      seconds = std::max(seconds, model->second * micro_batches / stages);
    return seconds * (1 + (stages - 1) / pieces);
  }

  bool full() const { return result.best.size() == most_; }
  double slowest() const { return result.best.back().times.seconds(); }

  void add(Suggestion s) {
    const auto order = [](const Suggestion& x) { return std::pair{x.times.seconds(), x.bytes}; };
    const auto place = std::ranges::upper_bound(result.best, order(s), {}, order);
    result.best.insert(place, std::move(s));
    if (result.best.size() <= most_) return;
    result.slower.add(slowest());
    result.best.pop_back();
  }

  void refuse(const std::string& reason, std::int64_t layouts = 1) {
    for (Suggestions::Refused& r : result.refused)
      if (r.reason == reason) return void(r.layouts += layouts);
    result.refused.push_back({reason, layouts});
  }

  const Layouts& layouts_;
  const DeviceModel& device_;
  const std::size_t most_;
  double ideal_ = 0;  // ideal_seconds() of the first plan; 0: none yet
  std::map<std::int64_t, double>
      kept_;  // seconds by size of a micro-batch, with least recomputation
  std::map<std::int64_t, double> sharded_;  // seconds_sharded() by size, of a grid
  std::map<ModelKey, double> models_;
};

}  // namespace

void Suggestions::Range::add(double x) {
  least = candidates == 0 ? x : std::min(least, x);
  most = std::max(most, x);
  ++candidates;
}

Suggestions suggest(const config::Config& config, int ranks, const DeviceModel& device,
                    std::size_t most) {
  const Layouts layouts(config, ranks, From::first);
  Search search(layouts, device, most);
  for (const Layouts::Grid& grid : layouts.grids()) search.grid(grid);
  if (layouts.resolve(config)) {
    config::Config as_given = config;
    choose(config, ranks, device).set(as_given);
    search.result.given = search.plan(config, *layouts.resolve(as_given));
  }
  return std::move(search.result);
}

}  // namespace tfm::plan
