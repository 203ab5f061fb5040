#pragma once
// Plans of all ranks, each that is different once.
#include <algorithm>

#include "plan/step_plan.h"

namespace tfm::plan {

// Ranks that have parts of a parameter of the same sizes have the same memory, products and
// collectives: the last share of a vocabulary may be shorter than the others.
class RankPlans {
 public:
  // `config`: resolved for its ranks.
  explicit RankPlans(const config::Config& config);

  const StepPlan& of(int rank) const { return plans_[index_[place_of(rank)]]; }
  const StepPlan& first() const { return plans_.front(); }
  // f(plan, number of the job's ranks that have it)
  template <class F>
  void each(F&& f) const {
    const comm::Layout& layout = first().mesh.layout;
    for (std::size_t i = 0; i < plans_.size(); ++i)
      f(plans_[i], std::ranges::count(index_, i) * layout.size(comm::kWorld - kSharedOut));
  }
  std::vector<const StepPlan*> stages() const;  // of a pipeline: the plan of each one's first rank

 private:
  // Along these axes ranks have other parameters.
  static constexpr comm::AxisSet kSharedOut = nn::kModelAxes | nn::kStageAxes;
  std::size_t place_of(int rank) const {
    return static_cast<std::size_t>(first().mesh.layout.place(rank, kSharedOut));
  }

  std::vector<StepPlan> plans_;
  std::vector<std::size_t> index_;  // of the plan, by place along kSharedOut
};

// Of each stage's rank that has the largest share of everything, for searches: of stages with equal
// parts one is planned, the first, which has the most micro-batches under way.
class StagePlans {
 public:
  // `config`: resolved for its ranks.
  explicit StagePlans(const config::Config& config, Extent extent = Extent::whole);
  // `alike`: of one that differs in no more than recomputation and micro-batches.
  StagePlans(const config::Config& config, const StagePlans& alike, Extent extent);
  void extend(Extent extent);

  std::vector<const StepPlan*> stages() const;
  StepPlan& fullest();  // that takes the most memory

 private:
  std::vector<StepPlan> plans_;
  std::vector<std::size_t> index_;  // of the plan, by stage
};

// StagePlans::fullest(): of a run without a pipeline that of rank 0.
StepPlan plan_of_fullest(const config::Config& config);

}  // namespace tfm::plan
