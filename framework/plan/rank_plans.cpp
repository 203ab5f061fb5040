#include "plan/rank_plans.h"

#include <algorithm>
#include <future>
#include <map>

#include "models/registry.h"

namespace tfm::plan {
namespace {

// Those that are borrowed as negative numbers.
std::vector<std::int64_t> sizes_of_parts(const config::Config& config, const comm::Mesh& mesh) {
  const auto model = models::make_model(config, mesh);
  std::vector<std::int64_t> sizes;
  const nn::ParameterSet& parameters = model->parameters();
  for (const nn::PartSlice& s : parameters.slices()) sizes.push_back(s.elements());
  for (const int i : parameters.borrowed()) sizes.push_back(-parameters.local_shape(i).elements());
  return sizes;
}

// The same of each stage, of whole parts.
std::vector<std::vector<std::int64_t>> parts_of_stages(const nn::Model& model) {
  const nn::ParameterSet& parameters = model.parameters();
  std::map<int, std::vector<std::int64_t>> sizes;
  for (int i = 0; i < parameters.size(); ++i)
    for (const nn::PartSpec& p : parameters.spec(i).parts) {
      const std::int64_t size = p.rows * std::max<std::int64_t>(parameters.spec(i).cols, 1);
      sizes[parameters.spec(i).stage].push_back(size);
      for (const int borrower : parameters.spec(i).borrowers) sizes[borrower].push_back(-size);
    }
  std::vector<std::vector<std::int64_t>> all;  // every stage has parts
  for (auto& [stage, parts] : sizes) all.push_back(std::move(parts));
  return all;
}

// f(i), the first on this thread.
template <class F>
void each_at_once(std::size_t count, const F& f) {
  std::vector<std::future<void>> others;
  for (std::size_t i = 1; i < count; ++i)
    others.push_back(std::async(std::launch::async, [&f, i] { f(i); }));
  if (count > 0) f(0);
  for (std::future<void>& o : others) o.get();
}

}  // namespace

RankPlans::RankPlans(const config::Config& config) {
  const comm::Layout layout = config::layout_of(config);
  std::vector<std::pair<int, std::vector<std::int64_t>>> known;  // stage, and sizes of its parts
  for (const int rank : layout.group(0, kSharedOut)) {
    const comm::Mesh mesh(layout, rank);
    std::pair key{mesh.place(nn::kStageAxes), sizes_of_parts(config, mesh)};
    const auto at = std::ranges::find(known, key);
    index_.push_back(static_cast<std::size_t>(at - known.begin()));
    if (at != known.end()) continue;
    known.push_back(std::move(key));
    plans_.push_back(make_step_plan(config, mesh));
  }
}

std::vector<const StepPlan*> RankPlans::stages() const {
  std::vector<const StepPlan*> all;
  for (const int rank : first().mesh.layout.group(0, nn::kStageAxes)) all.push_back(&of(rank));
  return all;
}

StagePlans::StagePlans(const config::Config& config, Extent extent) {
  const comm::Layout layout = config::layout_of(config);
  std::vector<int> ranks{0};
  std::vector<std::optional<StepPlan>> plans(1);
  const auto plan = [&](std::size_t i) {
    plans[i] = make_step_plan(config, comm::Mesh(layout, ranks[i]), {}, {}, Extent::parameters);
  };
  plan(0);
  std::vector<std::vector<std::int64_t>> parts = parts_of_stages(plans[0]->model());
  // The last stage makes the losses, also where its parts are as large as another's.
  std::vector<std::pair<bool, std::vector<std::int64_t>>> planned;
  for (const int rank : layout.group(0, nn::kStageAxes)) {
    const auto stage = static_cast<std::size_t>(layout.place(rank, nn::kStageAxes));
    std::pair key{stage + 1 == parts.size(), std::move(parts[stage])};
    const auto at = std::ranges::find(planned, key);
    index_.push_back(static_cast<std::size_t>(at - planned.begin()));
    if (at != planned.end()) continue;
    planned.push_back(std::move(key));
    if (rank > 0) ranks.push_back(rank);
  }
  plans.resize(ranks.size());
  each_at_once(ranks.size() - 1, [&](std::size_t i) { plan(i + 1); });
  for (std::optional<StepPlan>& p : plans) plans_.push_back(std::move(*p));
  if (extent != Extent::parameters) this->extend(extent);
}

StagePlans::StagePlans(const config::Config& config, const StagePlans& alike, Extent extent)
    : index_(alike.index_) {
  for (const StepPlan& p : alike.plans_)
    plans_.push_back(make_step_plan(config, p.mesh, {}, {}, Extent::parameters, p.parameters));
  if (extent != Extent::parameters) this->extend(extent);
}

void StagePlans::extend(Extent extent) {
  const StepPlan& first = plans_.front();
  if (extent == Extent::whole) add_translator(plans_.front());
  for (StepPlan& p : plans_)
    p.translator = first.translator, p.translation_bytes = first.translation_bytes;
  each_at_once(plans_.size(), [&](std::size_t i) { plan::extend(plans_[i], extent); });
}

std::vector<const StepPlan*> StagePlans::stages() const {
  std::vector<const StepPlan*> all;
  for (const std::size_t i : index_) all.push_back(&plans_[i]);
  return all;
}

StepPlan& StagePlans::fullest() {
  return *std::ranges::max_element(plans_, {}, [](const StepPlan& p) { return p.memory.total(); });
}

StepPlan plan_of_fullest(const config::Config& config) {
  StagePlans plans(config);
  return std::move(plans.fullest());
}

}  // namespace tfm::plan
