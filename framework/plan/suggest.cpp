#include "plan/suggest.h"

#include <algorithm>

#include "plan/rank_plans.h"

namespace tfm::plan {
namespace {

class Search {
 public:
  Search(const Layouts& layouts, const DeviceModel& device, std::size_t most)
      : layouts_(layouts), device_(device), most_(most) {}

  void grid(const Layouts::Grid& g) {
    if (!g.refusal.empty()) return refuse(g.refusal);
    for (const config::Config& stage : layouts_.zero_stages(g)) {
      kept_.clear();
      for (const config::Config& recomputes : layouts_.recomputations(stage))
        micro_batches(layouts_.micro_batches(recomputes));
    }
  }

  Suggestion plan(const config::Config& read, const config::Config& resolved) {
    StagePlans plans(resolved);
    const StepPlan& p = plans.fullest();
    const ShapePlan& shape = p.largest();
    ++result.planned;
    return {.changes = layouts_.changes(read),
            .layout = p.mesh.layout,
            .sequence = resolved.parallel.sequence && p.mesh.layout.size(nn::kModelAxes) > 1,
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
      Suggestion s = plan(sizes[i], *resolved);
      kept_.try_emplace(resolved->train.micro_batch_size, s.times.seconds());
      if (const std::int64_t over = s.bytes - device_.usable_bytes(); over > 0) {
        result.too_large.add(static_cast<double>(over));
        result.larger += static_cast<std::int64_t>(sizes.size() - i - 1);
        return;
      }
      add(std::move(s));
    }
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

  void refuse(const std::string& reason) {
    for (Suggestions::Refused& r : result.refused)
      if (r.reason == reason) return void(++r.layouts);
    result.refused.push_back({reason, 1});
  }

  const Layouts& layouts_;
  const DeviceModel& device_;
  const std::size_t most_;
  std::map<std::int64_t, double>
      kept_;  // seconds by size of a micro-batch, with least recomputation
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
  if (const auto as_given = layouts.resolve(config))
    search.result.given = search.plan(config, *as_given);
  return std::move(search.result);
}

}  // namespace tfm::plan
