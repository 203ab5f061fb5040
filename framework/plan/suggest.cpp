#include "plan/suggest.h"

#include <algorithm>
#include <limits>
#include <map>

#include "plan/choose.h"
#include "plan/least_time.h"
#include "plan/rank_plans.h"

namespace tfm::plan {
namespace {

class Search {
 public:
  Search(const Layouts& layouts, const DeviceModel& device, std::size_t most)
      : layouts_(layouts), device_(device), most_(most), least_(device) {}

  void run() {
    std::vector<Order> orders;
    const auto collect = [&](const Layouts::Grid& g, auto&& next) {
      g.refusal.empty() ? next(g) : refuse(g.refusal);
    };
    for (const Layouts::Grid& grid : layouts_.grids())
      collect(grid, [&](const Layouts::Grid& g) {
        for (Layouts::Grid& order : layouts_.schedules(g))
          collect(order, [&](const Layouts::Grid& o) { orders.push_back(order_of(o)); });
      });
    // The one that may be the fastest comes next: it tells most about the others.
    while (!orders.empty()) {
      const auto next = std::ranges::min_element(orders, {}, &Order::least);
      if (!slow(*next) && !next->fastest()->sizes.layers->known()) {
        learn(*next->fastest(), orders);
        continue;
      }
      search(*next);
      orders.erase(next);
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
  // Ranks along each axis and a pipeline's schedule, in any ZeRO stage and with any recomputation.
  struct Order {
    struct Size {             // of a micro-batch
      config::Config config;  // for the ranks
      LeastTime::Sizes sizes;
      double least;  // seconds
    };
    Layouts::Grid grid;
    std::vector<Size> sizes;
    std::vector<std::string> refusals;  // of other sizes

    const Size* fastest() const { return &*std::ranges::min_element(sizes, {}, &Size::least); }
    double least() const {
      return sizes.empty() ? std::numeric_limits<double>::infinity() : fastest()->least;
    }
  };

  Order order_of(const Layouts::Grid& grid) {
    Order order{.grid = grid};
    for (const config::Config& size : layouts_.micro_batches(grid.config)) {
      std::string refusal;
      if (const auto resolved = layouts_.resolve(size, &refusal)) {
        const LeastTime::Sizes sizes = least_.sizes_of(*resolved);
        order.sizes.push_back({*resolved, sizes, least_seconds(sizes)});
      } else {
        order.refusals.push_back(refusal);
      }
    }
    return order;
  }

  double least_seconds(const LeastTime::Sizes& sizes) const {
    return std::ranges::min(least_.seconds(sizes));
  }

  void learn(const Order::Size& size, std::vector<Order>& orders) {
    ++result.planned;
    least_.learn(size.config);
    for (Order& o : orders)
      for (Order::Size& s : o.sizes)
        if (s.sizes.layers == size.sizes.layers) s.least = least_seconds(s.sizes);
  }

  bool slow(const Order& order) const {
    return order.sizes.empty() || (full() && order.least() > slowest());
  }

  void search(const Order& order) {
    const std::vector<config::Config> stages = layouts_.zero_stages(order.grid);
    if (slow(order)) {
      const std::int64_t variants =
          std::ssize(stages) * std::ssize(layouts_.recomputations(order.grid.config));
      result.bounded += std::ssize(order.sizes) * variants;
      for (const std::string& r : order.refusals) refuse(r, variants);
      return;
    }
    layers_seconds_.clear();
    for (const config::Config& stage : stages) {
      kept_.clear();
      for (const config::Config& recomputes : layouts_.recomputations(stage))
        micro_batches(layouts_.micro_batches(recomputes));
    }
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
      const auto zero = static_cast<std::size_t>(resolved->parallel.zero);
      const auto layers = layers_seconds_.find(resolved->train.micro_batch_size);
      if (full() && (least_.seconds(least_.sizes_of(*resolved))[zero] > slowest() ||
                     (layers != layers_seconds_.end() && layers->second > slowest()))) {
        ++result.bounded;
        continue;
      }
      Suggestion s = plan(sizes[i], *resolved);
      layers_seconds_.try_emplace(resolved->train.micro_batch_size, s.times.layers);
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

  void refuse(const std::string& reason, std::int64_t layouts = 1) {
    for (Suggestions::Refused& r : result.refused)
      if (r.reason == reason) return void(r.layouts += layouts);
    result.refused.push_back({reason, layouts});
  }

  const Layouts& layouts_;
  const DeviceModel& device_;
  const std::size_t most_;
  LeastTime least_;
  std::map<std::int64_t, double>
      kept_;  // seconds by size of a micro-batch, with least recomputation
  std::map<std::int64_t, double> layers_seconds_;  // of an order, by size of a micro-batch
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
  search.run();
  if (layouts.resolve(config)) {
    config::Config as_given = config;
    choose(config, ranks, device).set(as_given);
    search.result.given = search.plan(config, *layouts.resolve(as_given));
  }
  return std::move(search.result);
}

}  // namespace tfm::plan
