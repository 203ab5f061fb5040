#include "plan/suggest.h"

#include <algorithm>
#include <limits>
#include <map>

#include "plan/choose.h"
#include "plan/layouts.h"
#include "plan/least_time.h"
#include "plan/rank_plans.h"
#include "plan/run_memory.h"

namespace tfm::plan {
namespace {

class Search {
 public:
  // Whether a candidate fits is known by all of its plan. Of most the part that decides their time
  // is enough: with Memory::at_least only those found are planned in full.
  enum class Memory : std::uint8_t { at_least, exact };

  Search(const Layouts& layouts, const DeviceModel& device, std::size_t most, Memory memory)
      : layouts_(layouts), device_(device), most_(most), memory_(memory), least_(device) {}

  // False: one that was to be among the best does not fit, so others may be, that were left out.
  bool run() {
    std::vector<Order> orders;
    const auto collect = [&](const Layouts::Grid& g, auto&& next) {
      g.refusal.empty() ? next(g) : refuse(g.refusal);
    };
    for (const Layouts::Grid& grid : layouts_.grids())
      collect(grid, [&](const Layouts::Grid& g) {
        for (Layouts::Grid& order : layouts_.schedules(g.choice))
          collect(order, [&](const Layouts::Grid& o) { orders.push_back(order_of(o.choice)); });
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
    if (!plan_found()) return false;
    measure_too_large();
    return true;
  }

  Suggestion plan(const LayoutChoice& choice, const config::Config& resolved) const {
    StagePlans plans(resolved);
    const StepPlan& p = plans.fullest();
    const ShapePlan& shape = p.largest();
    return {.choice = choice,
            .layout = p.mesh.layout,
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
    LayoutChoice grid;
    std::vector<Size> sizes;
    std::vector<std::string> refusals;  // of other sizes

    const Size* fastest() const { return &*std::ranges::min_element(sizes, {}, &Size::least); }
    double least() const {
      return sizes.empty() ? std::numeric_limits<double>::infinity() : fastest()->least;
    }
  };

  Order order_of(const LayoutChoice& grid) {
    Order order{.grid = grid};
    for (const LayoutChoice& size : layouts_.micro_batches(grid)) {
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
    const std::vector<LayoutChoice> stages = layouts_.zero_stages(order.grid);
    if (slow(order)) {
      const std::int64_t variants =
          std::ssize(stages) * std::ssize(layouts_.recomputations(order.grid));
      result.bounded += std::ssize(order.sizes) * variants;
      for (const std::string& r : order.refusals) refuse(r, variants);
      return;
    }
    layers_seconds_.clear();
    for (const LayoutChoice& stage : stages) {
      kept_.clear();
      parameters_.reset();
      for (const LayoutChoice& recomputes : layouts_.recomputations(stage))
        micro_batches(layouts_.micro_batches(recomputes));
    }
  }

  // In ascending order of their size. Memory grows with it, but the largest may fit again: alone in
  // its step it shares the memory of gradients, see graph::PlanOptions.
  void micro_batches(const std::vector<LayoutChoice>& sizes) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      std::string refusal;
      const auto resolved = layouts_.resolve(sizes[i], &refusal);
      if (!resolved) {
        refuse(refusal);
        continue;
      }
      // What recomputes does all that the same without does, and more.
      const auto kept = kept_.find(resolved->train.micro_batch());
      if (kept != kept_.end() && full() && kept->second >= slowest()) {
        ++result.no_faster;
        continue;
      }
      const auto zero = static_cast<std::size_t>(resolved->parallel.zero);
      const auto layers = layers_seconds_.find(resolved->train.micro_batch());
      const LeastTime::Sizes least = least_.sizes_of(*resolved);
      if (full() &&
          (least_.seconds(least)[zero] > slowest() ||
           (layers != layers_seconds_.end() && layers->second + least.sums > slowest()))) {
        ++result.bounded;
        continue;
      }
      if (const auto over = consider(sizes[i], *resolved); over > 0) {
        too_large_.push_back({*resolved, over});
        const std::size_t larger = sizes.size() - i - 1;
        const bool again =
            larger > 0 && resolved->parallel.pipeline == 1 && resolved->parallel.zero < 2;
        result.larger += static_cast<std::int64_t>(larger - again);
        if (!again) return;
        i = sizes.size() - 2;
      }
    }
  }

  // Adds one that seems to fit to those found or to the slower ones. Otherwise returns the bytes
  // that it takes at least over what is usable.
  std::int64_t consider(const LayoutChoice& choice, const config::Config& resolved) {
    if (!parameters_) parameters_.emplace(resolved, Extent::parameters);
    StagePlans plans(resolved, *parameters_, Extent::parameters);
    const std::int64_t usable = device_.usable_bytes();
    const auto bytes = [&] { return plans.fullest().memory.total(); };
    if (bytes() > usable) return bytes() - usable;
    plans.extend(Extent::timed);
    ++result.planned;
    const Prediction times = predict(plans.stages(), device_);
    layers_seconds_.try_emplace(resolved.train.micro_batch(), times.layers);
    kept_.try_emplace(resolved.train.micro_batch(), times.seconds());
    if (bytes() > usable) return bytes() - usable;
    if (full() && times.seconds() > slowest()) {
      result.slower.add(times.seconds());
      return 0;
    }
    if (memory_ == Memory::exact)
      plans.extend(Extent::whole);
    else if (bytes() > usable - usable / 8)  // gaps between buffers rarely take as much
      plans.extend(Extent::largest);
    if (bytes() > usable) return bytes() - usable;
    add({choice, resolved, times.seconds(), bytes()});
    return 0;
  }

  // Of those that are too large, the one that is so by the fewest bytes is planned until these are
  // exact; of others lower bounds remain.
  void measure_too_large() {
    std::ranges::sort(too_large_, {}, &TooLarge::over);
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (TooLarge& t : too_large_) {
      if (t.over < least) {
        StagePlans plans(t.resolved, Extent::largest);
        t.over = std::max(t.over, plans.fullest().memory.total() - device_.usable_bytes());
        least = std::min(least, t.over);
      }
      result.too_large.add(static_cast<double>(t.over));
    }
  }

  struct Found {
    LayoutChoice choice;
    config::Config resolved;
    double seconds;
    std::int64_t bytes;  // at least
  };

  struct TooLarge {
    config::Config resolved;
    std::int64_t over;  // at least
  };

  bool full() const { return found_.size() >= most_; }
  double slowest() const { return found_[most_ - 1].seconds; }

  void add(Found f) {
    const auto place = std::ranges::upper_bound(found_, f.seconds, {}, &Found::seconds);
    found_.insert(place, std::move(f));
    for (; full() && found_.back().seconds > slowest(); found_.pop_back())
      result.slower.add(found_.back().seconds);
  }

  // Of those of equal time the ones that take the least memory.
  bool plan_found() {
    const auto order = [](const Suggestion& s) { return std::pair{s.times.seconds(), s.bytes}; };
    std::vector<Suggestion>& best = result.best;
    for (const Found& f : found_) {
      if (best.size() < most_ || std::pair{f.seconds, f.bytes} < order(best.back())) {
        Suggestion s = plan(f.choice, f.resolved);
        if (s.bytes > device_.usable_bytes()) return false;
        best.insert(std::ranges::upper_bound(best, order(s), {}, order), std::move(s));
        if (best.size() <= most_) continue;
        best.pop_back();
      }
      result.slower.add(f.seconds);
    }
    return true;
  }

  void refuse(const std::string& reason, std::int64_t layouts = 1) {
    for (Suggestions::Refused& r : result.refused)
      if (r.reason == reason) return void(r.layouts += layouts);
    result.refused.push_back({reason, layouts});
  }

  const Layouts& layouts_;
  const DeviceModel& device_;
  const std::size_t most_;
  const Memory memory_;
  LeastTime least_;
  std::vector<TooLarge> too_large_;
  std::vector<Found> found_;  // the fastest `most_`, and those as fast as the last of these
  std::map<std::int64_t, double>
      kept_;  // seconds by size of a micro-batch, with least recomputation
  std::map<std::int64_t, double> layers_seconds_;  // of an order, by size of a micro-batch
  std::optional<StagePlans> parameters_;           // of an order with a ZeRO stage
};

// Smaller micro-batches and recomputation; everything else is as in `c`.
std::optional<Fit> with_less_activations(const Layouts& layouts, const LayoutChoice& c,
                                         std::int64_t usable_bytes) {
  bool first = true;
  for (const LayoutChoice& recomputes : layouts.recomputations(c))
    for (const LayoutChoice& candidate : layouts.micro_batches(recomputes)) {
      const auto resolved = layouts.resolve(candidate);
      if (!resolved) continue;
      const device::MemoryPlan memory = plan_of_fullest(*resolved).memory;
      if (memory.total() <= usable_bytes) return Fit{candidate, memory.total()};
      if (first && memory.total() - memory.categories.at(kActivations) > usable_bytes)
        return std::nullopt;
      first = false;
    }
  return std::nullopt;
}

}  // namespace

void Suggestions::Range::add(double x) {
  least = candidates == 0 ? x : std::min(least, x);
  most = std::max(most, x);
  ++candidates;
}

Suggestions suggest(const config::Config& config, int ranks, const DeviceModel& device,
                    std::size_t most) {
  const Layouts layouts(config, ranks, From::first);
  std::optional<Search> search;
  for (const auto memory : {Search::Memory::at_least, Search::Memory::exact})
    if (search.emplace(layouts, device, most, memory).run()) break;
  if (layouts.resolve(LayoutChoice::of(config))) {
    const LayoutChoice given = choose(config, ranks, device).layout;
    ++search->result.planned;
    search->result.given = search->plan(given, *layouts.resolve(given));
  }
  return std::move(search->result);
}

std::optional<Fit> nearest_fit(const config::Config& config, int ranks, std::int64_t usable_bytes) {
  const Layouts layouts(config, ranks, From::given);
  for (const Layouts::Grid& grid : layouts.grids())
    if (grid.refusal.empty())
      for (const LayoutChoice& stage : layouts.zero_stages(grid.choice))
        if (const auto fit = with_less_activations(layouts, stage, usable_bytes)) return fit;
  return std::nullopt;
}

}  // namespace tfm::plan
