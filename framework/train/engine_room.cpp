// Room for the rows that come to a rank's experts: how much a step lacks, and plans with more.
#include <algorithm>
#include <cmath>

#include "kernels/elementwise.h"
#include "train/engine.h"

namespace tfm::train {

double Engine::missing_room() const {
  if (plan_.mesh.layout.size(nn::kExpertAxes) == 1) return 0;
  const StepOutcome& outcome = *memory_.host[oldest_].outcome;
  // Choices of experts mean nothing where training has diverged.
  double excess = std::ranges::all_of(outcome.loss, [](double x) { return std::isfinite(x); })
                      ? outcome.excess
                      : 0;
  plan_.mesh.world().all_reduce({&excess, DType::f64, {1}}, comm::Collective::all_reduce_max);
  return 1.125 * excess;
}

void Engine::make_room(double more) {
  const auto each_launched = [&](const auto& f) {
    for (std::size_t i = 0; i < under_way_; ++i) f((oldest_ + i) % memory_.host.size(), i > 0);
  };
  each_launched([&](std::size_t i, bool) { wait_for(launched_[i].done); });
  ++replans_;
  plan::set_expert_bound(plan_, plan_.config.parallel.expert_bound + more);
  replays_.clear();
  const std::int64_t bytes = plan::work_bytes(plan_);
  work_ = {};
  work_ = {device_.allocate(bytes), bytes};
  plan::lay_out_work(plan_, work_, memory_);
  device::on(device_.stream(), [&](auto& s) {
    kernels::fill(s, kernels::FillArgs<double>{1, 0, &memory_.outcome->excess});
  });
  for (plan::ShapePlan& s : plan_.shapes) bind(s);
  each_launched([&](std::size_t i, bool ahead) { enqueue(i, ahead); });
}

}  // namespace tfm::train
