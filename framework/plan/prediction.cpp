#include "plan/prediction.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

namespace tfm::plan {
namespace {

class Clock {
 public:
  Clock(const StepPlan& plan, const ShapePlan& shape, const DeviceModel& device)
      : plan_(plan), program_(shape.train_program), device_(device) {}

  // `times` equal ones.
  void micro_batch(graph::MicroBatch which, double times) {
    times_ = times;
    for (std::size_t i = 0; i < program_.instructions().size(); ++i) {
      const graph::Instruction& s = program_.instructions()[i];
      if (s.kind == graph::Instruction::Kind::compute) {
        compute(i, !which.first);
        continue;
      }
      const graph::Exchange& x = program_.exchanges()[static_cast<std::size_t>(s.exchange)];
      if (!program_.runs(x, which)) continue;
      s.kind == graph::Instruction::Kind::start ? start(s, x) : wait(s);
    }
    times_ = 1;
  }

  std::vector<double> nodes(bool accumulating) {
    std::vector<double> seconds(program_.recording().nodes().size());
    for (std::size_t i = 0; i < program_.instructions().size(); ++i) {
      const graph::Instruction& s = program_.instructions()[i];
      if (s.phase != graph::Phase::forward && s.phase != graph::Phase::backward) continue;
      const double before = now_;
      if (s.kind == graph::Instruction::Kind::compute) {
        compute(i, accumulating);
      } else {
        const graph::Exchange& x = program_.exchanges()[static_cast<std::size_t>(s.exchange)];
        if (!x.message()) s.kind == graph::Instruction::Kind::start ? start(s, x) : wait(s);
      }
      seconds[static_cast<std::size_t>(s.node)] += now_ - before;
    }
    return seconds;
  }

  void collective(const std::string& phase, const comm::CollectiveCall& call) {
    spend(phase, Limit::communication, device_.collective_seconds(call, plan_.mesh.layout));
  }

  void update() {
    const UpdateBytes bytes = update_bytes(plan_);
    spend("optimizer", Limit::optimizer, (bytes.norm + bytes.update) / device_.bandwidth);
    for (const graph::Work::Product& p :
         optimizer_of(plan_).rule->products(plan_.model().parameters(), plan_.mesh.layout))
      spend("optimizer", Limit::optimizer, device_.product_seconds(p, plan_.dtype));
  }

  Prediction result;

 private:
  void spend(const std::string& phase, Limit limit, double seconds) {
    spend(result.phases[phase], limit, seconds);
  }
  void spend(double& phase, Limit limit, double seconds) {
    phase += seconds * times_;
    result.limits[static_cast<std::size_t>(limit)] += seconds * times_;
    now_ += seconds;
  }

  void compute(std::size_t i, bool accumulating) {
    double& phase = result.phases[std::string(graph::name_of(program_.instructions()[i].phase))];
    const KernelSeconds k = kernel_seconds(program_, i, accumulating, device_);
    spend(phase, Limit::products, k.products);
    spend(phase, Limit::attention, k.attention);
    spend(phase, Limit::memory, k.memory);
    spend(phase, Limit::launches, k.launches);
  }

  // Groups of the same ranks share a queue.
  std::size_t queue_of(comm::AxisSet axes) const {
    for (const comm::Axis a : comm::kAxes)
      if (plan_.mesh.layout[a] == 1) axes = axes - a;
    return axes.bits();
  }

  // The collectives of a queue run one after the other, beside the kernels where the device can.
  void start(const graph::Instruction& s, const graph::Exchange& x) {
    const double seconds = device_.collective_seconds(x.call, plan_.mesh.layout);
    if (!device_.overlaps)
      return spend(std::string(graph::name_of(s.phase)), Limit::communication, seconds);
    double& busy = busy_until_[queue_of(x.call.axes)];
    busy = std::max(busy, now_) + seconds;
    ends_[s.exchange] = busy;
  }
  void wait(const graph::Instruction& s) {
    if (const double end = ends_[s.exchange]; end > now_)
      spend(std::string(graph::name_of(s.phase)), Limit::communication, end - now_);
  }

  const StepPlan& plan_;
  const graph::Program& program_;
  const DeviceModel& device_;
  double now_ = 0, times_ = 1;
  std::array<double, comm::AxisSet::kSets> busy_until_{};  // each queue
  std::map<int, double> ends_;                             // by exchange
};

}  // namespace

std::string_view name_of(Limit l) {
  constexpr std::string_view names[kLimits] = {
      "matrix products", "attention", "memory bandwidth", "optimizer", "communication",
      "launches",        "bubble"};
  return names[static_cast<std::size_t>(l)];
}

double Prediction::seconds() const { return std::accumulate(limits.begin(), limits.end(), 0.0); }
Limit Prediction::limited_by() const {
  return static_cast<Limit>(std::max_element(limits.begin(), limits.end()) - limits.begin());
}

KernelSeconds kernel_seconds(const graph::Program& program, std::size_t i, bool accumulating,
                             const DeviceModel& device) {
  const DType dtype = program.recording().dtype();
  const graph::Work work = program.work(i);
  const auto moved = [&] {
    return static_cast<double>(program.moved_bytes(i, accumulating)) / device.bandwidth;
  };
  KernelSeconds k;
  for (const graph::Work::Product& p : work.products)
    k.products += device.product_seconds(p, dtype);
  if (work.attention_flops > 0) {
    const bool backward = program.instructions()[i].phase == graph::Phase::backward;
    k.attention = std::max(device.attention_seconds(work, backward, dtype), moved());
  } else if (!work.products.empty()) {  // whose own bytes are in their time
    k.memory = static_cast<double>(work.extra_elements) * static_cast<double>(size_of(dtype)) /
               device.bandwidth;
  } else {
    k.memory = moved();
  }
  k.launches = std::max(0.0, work.kernels * device.launch - k.sum());
  return k;
}

UpdateBytes update_bytes(const StepPlan& plan) {
  const optim::OptimizerOptions options = optimizer_of(plan);
  const optim::ShardLayout& shards = plan.shards();
  const auto accum_bytes = size_of(accum_type(plan.dtype));
  // In one pass: weights, states and the weights' average are read and written, gradients read,
  // copies in fp16 written; those in bf16 are half of the weights.
  const std::int64_t element =
      (3 + (options.ema > 0 ? 2 : 0)) * accum_bytes + (plan.dtype == DType::f16 ? 2 : 0);
  const auto wide = static_cast<double>(accum_bytes);
  const double update =
      static_cast<double>(shards.elements * element) +
      2 * static_cast<double>(shards.state_elements) * wide +
      options.rule->further_accesses() * static_cast<double>(shards.elements) * wide;
  // Ranks share the norm, with ZeRO or without.
  const std::int64_t norm = optim::shared_elements(plan.buckets(), plan.mesh.layout) * accum_bytes;
  return {static_cast<double>(norm), update};
}

std::vector<double> seconds_of_nodes(const StepPlan& plan, const ShapePlan& shape,
                                     bool accumulating, const DeviceModel& device) {
  return Clock(plan, shape, device).nodes(accumulating);
}

Prediction predict(const StepPlan& plan, const ShapePlan& shape, const DeviceModel& device) {
  Clock clock(plan, shape, device);
  const auto later = static_cast<double>(shape.micro_batches - 1);
  if (later > 0) clock.micro_batch({.first = true, .last = false}, 1);
  if (later > 1) clock.micro_batch({.first = false, .last = false}, later - 1);
  clock.micro_batch({.first = later == 0, .last = true}, 1);
  clock.result.passes = clock.result.layers = clock.result.seconds();
  for (const char* phase : {"gather", "reduce", "recompute"})
    if (const auto at = clock.result.phases.find(phase); at != clock.result.phases.end())
      clock.result.layers -= at->second;
  for (const comm::CollectiveCall& call : plan.sums()) clock.collective("reduce", call);
  clock.update();
  for (const comm::CollectiveCall& call :
       optim::update_collectives(plan.model().parameters(), plan.mesh.layout, optimizer_of(plan),
                                 plan.buckets(), plan.dtype))
    clock.collective("optimizer", call);
  return clock.result;
}

Prediction predict(const std::vector<const StepPlan*>& stages, const DeviceModel& device) {
  std::map<const StepPlan*, Prediction> known;  // equal stages have one plan
  std::vector<Prediction> all;
  for (const StepPlan* p : stages) {
    const auto [at, fresh] = known.try_emplace(p);
    if (fresh) at->second = predict(*p, p->largest(), device);
    all.push_back(at->second);
  }
  Prediction slowest = *std::ranges::max_element(all, {}, &Prediction::seconds);
  if (stages.size() == 1) return slowest;
  // A pipeline fills, and drains, with a micro-batch in one chunk of each of the other ranks.
  const StepPlan& first = *stages.front();
  const auto pieces =
      static_cast<double>(first.largest().micro_batches * first.config.parallel.stages_of_rank());
  const auto through = [&](double Prediction::*of) {
    double most = 0, sum = 0;
    for (const Prediction& p : all) most = std::max(most, p.*of), sum += p.*of;
    return most + (sum - most) / pieces;
  };
  const double bubble = through(&Prediction::passes) - slowest.passes;
  slowest.layers = through(&Prediction::layers);
  slowest.phases["bubble"] = slowest.limits[static_cast<std::size_t>(Limit::bubble)] = bubble;
  return slowest;
}

}  // namespace tfm::plan
