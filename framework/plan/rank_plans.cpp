#include "plan/rank_plans.h"

#include <algorithm>

#include "models/registry.h"

namespace tfm::plan {
namespace {

std::vector<std::int64_t> sizes_of_parts(const config::Config& config, const comm::Mesh& mesh) {
  const auto model = models::make_model(config, mesh);
  std::vector<std::int64_t> sizes;
  for (const nn::PartSlice& s : model->parameters().slices()) sizes.push_back(s.elements());
  return sizes;
}

}  // namespace

RankPlans::RankPlans(const config::Config& config) {
  const comm::Layout layout = config::layout_of(config);
  std::vector<std::vector<std::int64_t>> known;
  for (const int rank : layout.group(0, nn::kModelAxes)) {
    const comm::Mesh mesh(layout, rank);
    std::vector<std::int64_t> sizes = sizes_of_parts(config, mesh);
    const auto at = std::ranges::find(known, sizes);
    index_.push_back(static_cast<std::size_t>(at - known.begin()));
    if (at != known.end()) continue;
    known.push_back(std::move(sizes));
    plans_.push_back(make_step_plan(config, mesh));
  }
}

StepPlan plan_of_fullest(const config::Config& config) {
  return make_step_plan(config, comm::Mesh(config::layout_of(config)));
}

}  // namespace tfm::plan
