#include "plan/device_model.h"

#include <algorithm>
#include <cmath>

#include "optim/optimizer.h"

namespace tfm::plan {
namespace {

struct Tile {
  std::int64_t m, n;
  double rate;  // of the largest tile's
};

// Share of the rate of large products that a product reaches on multiprocessors: the best of some
// tile shapes and of cuts of the sum into `s` terms. Tiles beyond the edges and the last, partly
// filled wave are lost; a tile's start and end cost three steps of 64 terms.
double tile_efficiency(const graph::Work::Product& p, std::int64_t multiprocessors) {
  constexpr Tile tiles[] = {{256, 128, 1},   {128, 256, 1},   {128, 128, 0.9},
                            {128, 64, 0.75}, {64, 128, 0.75}, {64, 64, 0.55}};
  double best = 0;
  for (const Tile& t : tiles)
    for (std::int64_t s = 1; s == 1 || p.k / s >= 512; s *= 2) {
      const std::int64_t across = ceil_div(p.m, t.m), down = ceil_div(p.n, t.n);
      const double filled =
          static_cast<double>(p.m * p.n) / static_cast<double>(across * t.m * down * t.n);
      const double waves = static_cast<double>(across * down * s) /
                           static_cast<double>(multiprocessors),
                   terms = static_cast<double>(p.k) / static_cast<double>(s);
      best = std::max(best, t.rate * filled * waves / std::ceil(waves) * terms / (terms + 3 * 64));
    }
  return best;
}

int ring_passes(comm::Collective kind) {
  return kind == comm::Collective::all_reduce_sum || kind == comm::Collective::all_reduce_max ? 2
                                                                                              : 1;
}

}  // namespace

double ring_bytes(const comm::CollectiveCall& c, const comm::Layout& layout) {
  if (c.kind == comm::Collective::receive) return 0;
  if (c.kind == comm::Collective::send || c.kind == comm::Collective::ring_shift)
    return static_cast<double>(c.bytes);
  const int size = layout.size(c.axes);
  return ring_passes(c.kind) * static_cast<double>(c.bytes) * (size - 1) / size;
}

double DeviceModel::product_seconds(const graph::Work::Product& p, DType t) const {
  const double extent = std::max(1.0, std::cbrt(p.flops() / 2 / static_cast<double>(p.count))),
               efficiency = multiprocessors > 0 ? tile_efficiency(p, multiprocessors)
                                                : extent / (extent + rates(t).product_half_size);
  const auto size = size_of(t);
  const std::int64_t result = p.sum ? 2 * size_of(tfm::accum_type(t)) : size;  // read and written
  const double bytes = static_cast<double>(p.count) *
                       static_cast<double>((p.m * p.k + p.k * p.n) * size + p.m * p.n * result);
  const double arithmetic = p.flops() / (rates(t).product * efficiency * sustained),
               movement = bytes / bandwidth;
  // A processor packs factors before it multiplies them.
  return kind == config::DeviceKind::cpu ? arithmetic + movement : std::max(arithmetic, movement);
}

// The time of a score is a straight line through those of the two head sizes: products take longer
// with the size, exponentials do not. A causal mask halves what a query sees and leaves tiles on
// the diagonal half used; without one a third as many keys reach half of the rate (measured by Shah
// et al. 2024 and by NVIDIA for both). Of a narrower mask the keys count that a query sees.
double DeviceModel::attention_seconds(const graph::Work& w, bool backward, DType t) const {
  if (w.attention_flops == 0) return 0;
  const double seen = static_cast<double>(w.keys) * w.attention_flops /
                      (w.attention_flops + w.masked_flops);  // keys that a query sees
  const auto of_flop = [&](const AttentionRates& r) {
    const AttentionRate& at = backward ? r.backward : r.forward;
    const double half = w.masked_flops > 0 ? at.half_length / 2 : at.half_length / 3;
    return (1 + half / std::max(1.0, seen)) / at.rate;
  };
  const double size = static_cast<double>(w.head_size), small = 64 * of_flop(rates(t).head_64),
               large = 128 * of_flop(rates(t).head_128),
               least = std::max(0.0, 2 * small - large);  // of a score at size 0
  const double of_score =
      size < 64 ? least + (small - least) * size / 64 : small + (large - small) * (size - 64) / 64;
  return w.attention_flops * of_score / size / sustained;
}

double DeviceModel::collective_seconds(const comm::CollectiveCall& c,
                                       const comm::Layout& layout) const {
  const int size = layout.size(c.axes);
  if (size == 1 || c.kind == comm::Collective::barrier) return 0;
  if (c.peer >= 0) {  // the sender's time; a receiver that waits is in the bubble
    const auto& link = layout.stride(c.axes) < ranks_per_node ? node : network;
    return c.kind == comm::Collective::send
               ? link.latency + static_cast<double>(c.bytes) / link.bandwidth
               : 0;
  }
  const int here =
      std::max(1, std::min(size, static_cast<int>(ranks_per_node) / layout.stride(c.axes)));
  const int crossings = size > here ? std::min(size - 1, (size + here - 1) / here)
                                    : 0;         // of the size - 1 hops of an element
  if (c.kind == comm::Collective::ring_shift) {  // to a neighbour, over a link of its own
    const Link& link = crossings == 0 ? node : network;
    return ring_bytes(c, layout) / link.bandwidth + link.latency;
  }
  if (c.kind == comm::Collective::all_to_all) {  // all pairs at once
    const double part = static_cast<double>(c.bytes) / size;
    return std::max((here - 1) * part / node.bandwidth, (size - here) * part / network.bandwidth) +
           (crossings == 0 ? node.latency : network.latency);
  }
  const double bandwidth = crossings == 0 ? node.bandwidth
                           : here == 1    ? network.bandwidth
                                          : std::min(node.bandwidth, network.bandwidth * here);
  const double latency = crossings * network.latency + (size - 1 - crossings) * node.latency;
  return ring_bytes(c, layout) / bandwidth + ring_passes(c.kind) * latency;
}

std::optional<Target> target_of(std::string_view gpu, std::int64_t memory_bytes) {
  const auto called = [&](std::string_view part) { return gpu.find(part) != gpu.npos; };
  if (called("A100")) return memory_bytes > 60'000'000'000 ? Target::a100 : Target::a100_40gb;
  if (called("PCIe") || called("NVL")) return std::nullopt;  // slower than SXM modules
  if (gpu.starts_with("NVIDIA H200")) return Target::h200;
  if (gpu.starts_with("NVIDIA H100")) return Target::h100;
  if (gpu.starts_with("NVIDIA B200")) return Target::b200;
  if (called("L40S")) return Target::l40s;
  return std::nullopt;
}

DeviceModel cpu_model(const DeviceModel& core, std::int64_t memory_bytes, int cores, int ranks,
                      int threads) {
  const double mine = std::min(static_cast<double>(threads), static_cast<double>(cores) / ranks);
  DeviceModel rank = core;
  for (DeviceModel::Rates* r : {&rank.wide, &rank.half}) {
    r->peak *= mine, r->product *= mine;
    for (AttentionRates* a : {&r->head_64, &r->head_128})
      a->forward.rate *= mine, a->backward.rate *= mine;
  }
  rank.bandwidth *= mine;
  rank.memory_bytes = memory_bytes / ranks;
  rank.reserve_bytes = rank.memory_bytes / 10;
  rank.ranks_per_node = ranks;
  return rank;
}

}  // namespace tfm::plan
