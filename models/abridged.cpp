#include "models/abridged.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>

#include "models/registry.h"

namespace tfm::models {
namespace {

// A layer with those before and after it; -1: none.
using Neighbourhood = std::array<int, 3>;

std::vector<Neighbourhood> neighbourhoods(const std::vector<int>& kinds) {
  std::vector<Neighbourhood> all;
  for (std::size_t i = 0; i < kinds.size(); ++i)
    all.push_back({i > 0 ? kinds[i - 1] : -1, kinds[i], i + 1 < kinds.size() ? kinds[i + 1] : -1});
  return all;
}

// Equal layers have equal numbers.
std::vector<int> kinds_of(const std::vector<config::LayerConfig>& layers) {
  std::vector<int> kinds;
  std::vector<const config::LayerConfig*> known;
  for (const config::LayerConfig& layer : layers) {
    const auto at = std::ranges::find_if(known, [&](const auto* k) { return *k == layer; });
    kinds.push_back(static_cast<int>(at - known.begin()));
    if (at == known.end()) known.push_back(&layer);
  }
  return kinds;
}

// Removes the longest run of layers without which every neighbourhood is still there; false: there
// is none.
bool remove_repetition(std::vector<std::size_t>& kept, const std::vector<int>& all,
                       const std::set<Neighbourhood>& needed) {
  const auto kind = [&](std::size_t i) { return all[kept[i]]; };
  for (std::size_t n = kept.size() - 2; n > 0; --n)
    for (std::size_t first = 1; first + n < kept.size(); ++first) {
      if (kind(first - 1) != kind(first + n - 1) || kind(first) != kind(first + n)) continue;
      std::vector<std::size_t> rest = kept;
      const auto begin = rest.begin() + static_cast<std::ptrdiff_t>(first);
      rest.erase(begin, begin + static_cast<std::ptrdiff_t>(n));
      std::vector<int> kinds;
      for (const std::size_t layer : rest) kinds.push_back(all[layer]);
      const auto left = neighbourhoods(kinds);
      if (std::set(left.begin(), left.end()) != needed) continue;
      kept = std::move(rest);
      return true;
    }
  return false;
}

}  // namespace

Abridged abridged(const config::ModelConfig& model) {
  Abridged a{model, {}};
  const auto stacks = model.stacks();
  std::size_t first = 0;  // layer of the short model
  for (std::size_t s = 0; s < stacks.size(); ++s) {
    const std::vector<int> kinds = kinds_of(stacks[s]);
    const auto needed = neighbourhoods(kinds);
    const std::set<Neighbourhood> distinct(needed.begin(), needed.end());
    std::vector<std::size_t> kept(kinds.size());
    std::iota(kept.begin(), kept.end(), std::size_t{0});
    while (kept.size() > distinct.size() && kept.size() > 2 &&
           remove_repetition(kept, kinds, distinct)) {
    }
    std::vector<int> left;
    for (const std::size_t layer : kept) left.push_back(kinds[layer]);
    const auto found = neighbourhoods(left);
    for (const Neighbourhood& n : needed)
      a.like.push_back(first +
                       static_cast<std::size_t>(std::ranges::find(found, n) - found.begin()));
    a.model.keep_layers(s, kept);
    first += kept.size();
  }
  return a;
}

std::vector<double> layer_flops(const config::Config& config) {
  config::Config c = config;
  const Abridged a = abridged(config.model);
  c.model = a.model;
  c.parallel = {};
  const nn::BatchShape shape{.sequences = 1,
                             .length = c.train.seq_len,
                             .source_length = c.model.translates() ? c.train.seq_len : 0};
  const auto model = make_model(c, comm::single_mesh());
  const nn::Recording rec = model->record_loss(shape, DType::f32, true);
  std::vector<double> flops(static_cast<std::size_t>(c.model.total_layers()));
  double output = 0;
  for (const graph::Node& node : rec.tape->nodes()) {
    const graph::Work work = node.op->work(graph::Phase::forward);
    (node.scope < 0 ? output : flops[static_cast<std::size_t>(node.scope)]) +=
        work.flops() + std::min(work.masked_flops, work.attention_flops);
  }
  std::vector<double> all;
  for (const std::size_t layer : a.like) all.push_back(flops[layer]);
  all.back() += output;
  return all;
}

}  // namespace tfm::models
