#pragma once
// The plans of all ranks; ranks with equal plans share one.
#include <algorithm>

#include "plan/step_plan.h"

namespace tfm::plan {

// Ranks of a stage whose parts of parameters have the same sizes have the same memory, products and
// collectives. Sizes differ if the last share of a vocabulary is shorter than the others.
class RankPlans {
 public:
  // `config`: resolved for its ranks.
  explicit RankPlans(const config::Config& config);

  const StepPlan& of(int rank) const { return plans_[index_[place_of(rank)]]; }
  const StepPlan& first() const { return plans_.front(); }
  // Calls f(plan, number of ranks of the job that have it).
  template <class F>
  void each(F&& f) const {
    const comm::Layout& layout = first().mesh.layout;
    for (std::size_t i = 0; i < plans_.size(); ++i)
      f(plans_[i], std::ranges::count(index_, i) * layout.size(comm::kWorld - kSharedOut));
  }
  std::vector<const StepPlan*> stages() const;  // the plan of the first rank of each stage

 private:
  // The axes along which ranks have parameters of different sizes.
  static constexpr comm::AxisSet kSharedOut = nn::kModelAxes | nn::kStageAxes;
  std::size_t place_of(int rank) const {
    return static_cast<std::size_t>(first().mesh.layout.place(rank, kSharedOut));
  }

  std::vector<StepPlan> plans_;
  std::vector<std::size_t> index_;  // of the plan, by place along kSharedOut
};

// For searches: the plan of each stage for its rank with the largest share of everything. Stages
// with equal parts, but for the last one, share the plan of the first of them, which has the most
// micro-batches in flight.
class StagePlans {
 public:
  // `config`: resolved for its ranks.
  explicit StagePlans(const config::Config& config, Extent extent = Extent::whole);
  // `alike`: plans of a configuration that differs at most in recomputation and micro-batches.
  StagePlans(const config::Config& config, const StagePlans& alike, Extent extent);
  void extend(Extent extent);

  std::vector<const StepPlan*> stages() const;
  StepPlan& fullest();  // the one that takes the most memory

 private:
  std::vector<StepPlan> plans_;
  std::vector<std::size_t> index_;  // of the plan, by stage
};

// StagePlans::fullest(); without a pipeline, the plan of rank 0.
StepPlan plan_of_fullest(const config::Config& config);

}  // namespace tfm::plan
