#include "models/stages.h"

#include <algorithm>
#include <limits>

#include "models/abridged.h"
#include "nn/stage_messages.h"

namespace tfm::models {
namespace {

// The stage of each block: of all ways to give each stage a block at least the one whose costliest
// stage costs least, with as many blocks in the later ones as that allows.
std::vector<int> balanced(const std::vector<double>& costs, int stages) {
  const std::size_t n = costs.size();
  TFM_CHECK(static_cast<std::size_t>(stages) <= n, "every stage has a block");
  // least[s][b]: of stages s and later, with the blocks from b on
  std::vector<std::vector<double>> least(
      static_cast<std::size_t>(stages) + 1,
      std::vector<double>(n + 1, std::numeric_limits<double>::infinity()));
  auto ends = std::vector(static_cast<std::size_t>(stages), std::vector<std::size_t>(n + 1));
  least.back()[n] = 0;
  for (auto s = static_cast<std::size_t>(stages); s-- > 0;)
    for (std::size_t b = 0; b < n; ++b) {
      double sum = 0;
      for (std::size_t end = b + 1; end <= n; ++end) {
        sum += costs[end - 1];
        if (sum >= least[s][b]) break;
        if (const double most = std::max(sum, least[s + 1][end]); most < least[s][b])
          least[s][b] = most, ends[s][b] = end;
      }
    }
  std::vector<int> of;
  for (int s = 0; s < stages; ++s) of.resize(ends[static_cast<std::size_t>(s)][of.size()], s);
  return of;
}

// Where ranks have several stages it is their sums that count: a block moves to the stage beside it
// for as long as that makes the ranks' costs more alike.
void even_out(std::vector<int>& stage_of, const std::vector<double>& costs, int ranks) {
  std::vector<double> load(static_cast<std::size_t>(ranks));
  std::vector<int> blocks(static_cast<std::size_t>(stage_of.back()) + 1);
  for (std::size_t b = 0; b < costs.size(); ++b)
    load[stage_of[b] % ranks] += costs[b], ++blocks[stage_of[b]];
  const auto move = [&](std::size_t b, int to) {
    const int from = stage_of[b];
    double &here = load[from % ranks], &there = load[to % ranks];
    if (blocks[from] == 1 || here - there <= costs[b] * 1.001) return false;
    here -= costs[b], there += costs[b];
    --blocks[from], ++blocks[to];
    stage_of[b] = to;
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t b = 1; b < costs.size(); ++b)
      if (stage_of[b - 1] != stage_of[b])
        moved |= move(b, stage_of[b - 1]) || move(b - 1, stage_of[b]);
  }
}

std::vector<int> as_given(const std::vector<std::int64_t>& layers_per_stage) {
  std::vector<int> of;
  for (std::size_t s = 0; s < layers_per_stage.size(); ++s)
    of.insert(of.end(), static_cast<std::size_t>(layers_per_stage[s]), static_cast<int>(s));
  return of;
}

std::vector<int> stages_of_blocks(const config::Config& c, int ranks) {
  if (!c.parallel.layers_per_stage.empty()) return as_given(c.parallel.layers_per_stage);
  const int of_rank = c.parallel.stages_of_rank();
  if (ranks * of_rank == 1) return std::vector(static_cast<std::size_t>(c.model.total_layers()), 0);
  const std::vector<double> costs = layer_flops(c);
  std::vector<int> of = balanced(costs, ranks * of_rank);
  if (of_rank > 1) even_out(of, costs, ranks);
  return of;
}

}  // namespace

Stages::Stages(const config::Config& config, const comm::Mesh& mesh)
    : ranks_(mesh.layout.size(nn::kStageAxes)),
      own_(mesh.place(nn::kStageAxes)),
      of_(stages_of_blocks(config, ranks_)) {}

std::vector<std::int64_t> Stages::blocks_per_stage() const {
  std::vector<std::int64_t> blocks(static_cast<std::size_t>(count()));
  for (const int stage : of_) ++blocks[static_cast<std::size_t>(stage)];
  return blocks;
}

bool Stages::has(std::int64_t first, std::int64_t n) const {
  return std::any_of(of_.begin() + first, of_.begin() + first + n,
                     [&](int stage) { return own(stage); });
}

Relay::Relay(nn::Recording& rec, const Stages& stages, const nn::Context& context,
             std::int64_t width)
    : r_(*rec.tape), stages_(stages), context_(context), width_(width) {
  if (here()) chunk_ = 0;
  if (stages.ranks() == 1) return;
  const nn::ParameterSet& parameters = context.parameters;
  for (int i = 0; i < parameters.size(); ++i) {
    const nn::ParameterSpec& spec = parameters.spec(i);
    if (parameters.borrowed(i))
      ops::borrowed_gradient(r_, parameters.record(r_, i), spec.stage, nn::tag_of_parameter(i));
    if (parameters.owned(i) && !spec.borrowers.empty())
      ops::lent_gradient(r_, parameters.record(r_, i), spec.borrowers, nn::tag_of_parameter(i));
  }
}

bool Relay::pass_to(int stage, const std::vector<std::pair<graph::Value*, Rows>>& values) {
  bool received = false;
  for (; at_ < stage; ++at_) {
    const bool sends = stages_.own(at_), receives = stages_.own(at_ + 1);
    if (receives && ++chunk_ > 0) r_.next_chunk();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto& [value, rows] = values[i];
      // Stages, which one rank may have several of, have messages of their own.
      const int tag = nn::tag_of_value(at_ / stages_.ranks(), static_cast<int>(i));
      if (sends) {
        ops::send(r_, *value, stages_.rank_of(at_ + 1), tag);
        *value = {};
      }
      if (receives)
        *value = ops::receive(r_, {context_.rows_outside(rows), width_}, stages_.rank_of(at_), tag);
    }
    received |= receives;
  }
  return received;
}

}  // namespace tfm::models
