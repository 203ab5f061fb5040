#include "train/expert_load.h"

#include <algorithm>
#include <numeric>

namespace tfm::train {
namespace {

constexpr std::string_view kRouter = ".ffn.router.weight";

}  // namespace

double ExpertLoad::Layer::most() const { return *std::ranges::max_element(loads); }

ExpertLoad::ExpertLoad(const Engine& engine) {
  const nn::ParameterSet& parameters = engine.model().parameters();
  for (int i = 0; i < parameters.size(); ++i) {
    const nn::PartSpec& part = parameters.spec(i).parts[0];
    if (!part.name.ends_with(kRouter)) continue;
    if (parameters.owned(i)) own_.push_back(layers_.size());
    layers_.push_back({.name = part.name.substr(0, part.name.size() - kRouter.size()),
                       .loads = std::vector<double>(static_cast<std::size_t>(part.rows))});
  }
}

void ExpertLoad::gather(const Engine& engine, std::size_t shape) {
  const comm::Mesh& mesh = engine.plan().mesh;
  std::vector<std::size_t> first(layers_.size() + 1, 0);
  for (std::size_t l = 0; l < layers_.size(); ++l)
    first[l + 1] = first[l] + layers_[l].loads.size() + 2;
  std::vector<double> sums(first.back()), most(layers_.size());
  // Tensor ranks have the same tokens.
  if (mesh.place(nn::kModelAxes) == 0) {
    const double* from = engine.loads().data();
    for (const std::size_t l : own_) {
      const std::size_t n = first[l + 1] - first[l];
      std::copy_n(from, n, sums.data() + first[l]);
      from += n;
      most[l] = from[-1];
    }
  }
  mesh.world().all_reduce({sums.data(), DType::f64, {std::ssize(sums)}});
  mesh.world().all_reduce({most.data(), DType::f64, {std::ssize(most)}},
                          comm::Collective::all_reduce_max);
  const auto ranks = static_cast<double>(mesh.layout.size(nn::kTokenAxes)),
             sequences = static_cast<double>(engine.plan().shapes[shape].batch);
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    Layer& layer = layers_[l];
    const double* const sum = sums.data() + first[l];
    const std::size_t experts = layer.loads.size();
    const double even = std::accumulate(sum, sum + experts, 0.0) / static_cast<double>(experts);
    for (std::size_t e = 0; e < experts; ++e) layer.loads[e] = even > 0 ? sum[e] / even : 0;
    layer.entropy = sum[experts] / sequences;
    layer.busiest_rank = sum[experts + 1] > 0 ? most[l] * ranks / sum[experts + 1] : 1;
  }
}

double ExpertLoad::most() const {
  double most = 0;
  for (const Layer& l : layers_) most = std::max(most, l.most());
  return most;
}

double ExpertLoad::entropy() const {
  double sum = 0;
  for (const Layer& l : layers_) sum += l.entropy;
  return layers_.empty() ? 0 : sum / static_cast<double>(layers_.size());
}

double ExpertLoad::busiest_rank() const {
  double most = 1;
  for (const Layer& l : layers_) most = std::max(most, l.busiest_rank);
  return most;
}

}  // namespace tfm::train
