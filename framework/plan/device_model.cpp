#include "plan/device_model.h"

#include <algorithm>
#include <cmath>

#include "optim/optimizer.h"

namespace tfm::plan {
namespace {

constexpr double kTera = 1e12, kGiga = 1e9;

// Sources. Memory, `peak` (dense) and links: datasheets, per direction. `product`: means over large
// bf16 products, on an H200 as PyTorch ran them, published for H100 and A100 (Bekman, "Machine
// Learning Engineering", achievable matmul FLOP/s). `bandwidth`: a copy by PyTorch on an H200;
// published for an H100 (0.9 of the datasheet); assumed 0.85 of it on an A100. Assumptions that no
// measurement stands behind yet: fp32 products 0.75 of the peak (tensor cores are not used for
// them); attention as kernels of mma instructions have it at head size 64, and 0.2 of the peak in
// fp32; 0.85 of NVLink, and 0.85 of a network of 400 Gbit/s (H200, H100) or 200 Gbit/s (A100) a
// GPU; latencies; 1.5 microseconds a kernel, as in a graph; 3 GB for the driver's context,
// workspaces of libraries and communication buffers. Collectives are rings as NCCL's; those staged
// through the host's memory (comm/device_mesh.h) take longer.
DeviceModel hopper(std::string name, double memory, double product, double bandwidth) {
  return {.name = std::move(name),
          .memory_bytes = static_cast<std::int64_t>(memory),
          .reserve_bytes = 3'000'000'000,
          .wide = {67 * kTera, 50 * kTera, 13 * kTera},
          .half = {989 * kTera, product, 200 * kTera},
          .bandwidth = bandwidth,
          .launch = 1.5e-6,
          .multiprocessors = 132,
          .node = {3e-6, 0.85 * 450 * kGiga},
          .network = {8e-6, 0.85 * 50 * kGiga},
          .overlaps = true};
}
DeviceModel ampere(std::string name, double memory, double datasheet_bandwidth) {
  return {.name = std::move(name),
          .memory_bytes = static_cast<std::int64_t>(memory),
          .reserve_bytes = 3'000'000'000,
          .wide = {19.5 * kTera, 14.6 * kTera, 3.9 * kTera},
          .half = {312 * kTera, 271 * kTera, 110 * kTera},
          .bandwidth = 0.85 * datasheet_bandwidth,
          .launch = 1.5e-6,
          .multiprocessors = 108,
          .node = {3e-6, 0.85 * 300 * kGiga},
          .network = {8e-6, 0.85 * 25 * kGiga},
          .overlaps = true};
}

struct Tile {
  std::int64_t m, n;
  double rate;  // of the largest tile's
};

// Share of the rate of large products that a product reaches on multiprocessors: the best of some
// tile shapes and of cuts of the sum into `s` terms. Tiles beyond the edges and the last, partly
// filled wave are lost; a tile's start and end cost three steps of 64 terms.
double tile_efficiency(const graph::Work::Product& p, int multiprocessors) {
  constexpr Tile tiles[] = {{256, 128, 1},   {128, 256, 1},   {128, 128, 0.9},
                            {128, 64, 0.75}, {64, 128, 0.75}, {64, 64, 0.55}};
  double best = 0;
  for (const Tile& t : tiles)
    for (std::int64_t s = 1; s == 1 || p.k / s >= 512; s *= 2) {
      const std::int64_t across = ceil_div(p.m, t.m), down = ceil_div(p.n, t.n);
      const double filled =
          static_cast<double>(p.m * p.n) / static_cast<double>(across * t.m * down * t.n);
      const double waves = static_cast<double>(across * down * s) / multiprocessors,
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
  const double efficiency = multiprocessors > 0 ? tile_efficiency(p, multiprocessors) : 1;
  const auto size = static_cast<std::int64_t>(size_of(t));
  const std::int64_t result = p.sum ? 2 * static_cast<std::int64_t>(size_of(tfm::accum_type(t)))
                                    : size;  // read and written
  const double bytes = static_cast<double>(p.count) *
                       static_cast<double>((p.m * p.k + p.k * p.n) * size + p.m * p.n * result);
  return std::max(p.flops() / (rates(t).product * efficiency), bytes / bandwidth);
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
  const int here = std::max(1, std::min(size, ranks_per_node / layout.stride(c.axes)));
  const int crossings = size > here ? std::min(size - 1, (size + here - 1) / here)
                                    : 0;         // of the size - 1 hops of an element
  if (c.kind == comm::Collective::ring_shift) {  // to a neighbour, over a link of its own
    const Link& link = crossings == 0 ? node : network;
    return ring_bytes(c, layout) / link.bandwidth + link.latency;
  }
  const double bandwidth = crossings == 0 ? node.bandwidth
                           : here == 1    ? network.bandwidth
                                          : std::min(node.bandwidth, network.bandwidth * here);
  const double latency = crossings * network.latency + (size - 1 - crossings) * node.latency;
  return ring_bytes(c, layout) / bandwidth + ring_passes(c.kind) * latency;
}

DeviceModel gpu_model(Target gpu) {
  const std::string name = config::word(gpu);
  switch (gpu) {
    case Target::h200:
      return hopper(name, 141e9, 790 * kTera, 4.3 * kTera);
    case Target::h100:
      return hopper(name, 80e9, 794 * kTera, 3.0 * kTera);
    case Target::a100:
      return ampere(name, 80e9, 2.039 * kTera);
    case Target::a100_40gb:
      return ampere(name, 40e9, 1.555 * kTera);
    case Target::cpu:
      break;
  }
  internal_error("a processor has no model of a GPU");
}

std::optional<Target> target_of(std::string_view gpu, std::int64_t memory_bytes) {
  const auto called = [&](std::string_view part) { return gpu.find(part) != gpu.npos; };
  if (called("A100")) return memory_bytes > 60'000'000'000 ? Target::a100 : Target::a100_40gb;
  if (called("PCIe") || called("NVL")) return std::nullopt;  // slower than SXM modules
  if (gpu.starts_with("NVIDIA H200")) return Target::h200;
  if (gpu.starts_with("NVIDIA H100")) return Target::h100;
  return std::nullopt;
}

// One core of an EPYC processor of the fourth generation: `peak` is 16 multiply-adds a cycle
// at 3.66 GHz, the others are what `tfm-plan --measure` finds there. 16-bit products are assumed no
// faster than fp32 ones, as on processors without instructions for them.
CoreRates reference_core() {
  const DeviceModel::Rates rates{117 * kGiga, 104 * kGiga, 60 * kGiga};
  return {rates, rates, 20 * kGiga};
}

DeviceModel cpu_model(const CoreRates& core, std::int64_t memory_bytes, int cores, int ranks,
                      int threads) {
  const double mine = std::min(static_cast<double>(threads), static_cast<double>(cores) / ranks);
  const auto times = [&](const DeviceModel::Rates& r) {
    return DeviceModel::Rates{r.peak * mine, r.product * mine, r.attention * mine};
  };
  // Shared memory between two ranks, by `tfm-bench collectives` on the machine of the reference
  // core.
  const DeviceModel::Link shared{2e-6, 5 * kGiga};
  return {.name = "cpu",
          .memory_bytes = memory_bytes / ranks,
          .reserve_bytes = memory_bytes / ranks / 10,
          .wide = times(core.wide),
          .half = times(core.half),
          .bandwidth = core.bandwidth * mine,
          .launch = 1e-6,
          .ranks_per_node = ranks,
          .node = shared,
          .network = shared};
}

}  // namespace tfm::plan
