#pragma once
// What is known or assumed of a kind of device, so that a step can be timed before there is one
// (Williams et al. 2009, roofline). Times are in seconds, rates in FLOP/s and bytes/s. Descriptions
// of devices are files, see plan/device_file.h.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/mesh.h"
#include "config/options.h"
#include "graph/op.h"

namespace tfm::plan {

// FLOP/s of attention with heads of one size, of causal scores that are seen: `rate` with long
// sequences, half of it with `half_length` keys.
struct AttentionRate {
  double rate = 0, half_length = 0;
};
struct AttentionRates {
  AttentionRate forward, backward;
};

struct DeviceModel {
  struct Rates {
    double peak = 0;               // datasheet; utilization is a share of it
    double product = 0;            // large matrix products
    double product_half_size = 0;  // cube root of m n k at which a product has half of it
    AttentionRates head_64, head_128;
  };
  struct Link {
    double latency = 0;    // of one hop of a ring
    double bandwidth = 0;  // of one rank, one direction
  };

  std::string name;
  std::string rates_from = "nothing";
  config::DeviceKind kind = config::DeviceKind::cuda;
  std::int64_t memory_bytes = 0;   // of one rank
  std::int64_t reserve_bytes = 0;  // of these, what a plan leaves free
  Rates wide, half;                // of fp32; of bf16 and fp16
  double sustained = 1;            // share of the rates of products and attention that steps keep,
                                   // one after the other at the power limit
  double bandwidth = 0;            // of memory, reading and writing, as a copy has it
  double launch = 0;               // least time from one kernel's start to the next one's
  std::int64_t multiprocessors = 0;  // products are cut into tiles for them; 0: into any size
  std::int64_t ranks_per_node = 8;
  Link node, network;     // within a node, between nodes
  bool overlaps = false;  // collectives run beside kernels

  void use_tf32() {
    wide.peak = half.peak / 2, wide.product = half.product / 2;
  }  // as datasheets have it
  const Rates& rates(DType t) const { return is_half(t) ? half : wide; }
  std::int64_t usable_bytes() const { return memory_bytes - reserve_bytes; }
  // All repetitions of a product whose factors are of type t.
  double product_seconds(const graph::Work::Product& p, DType t) const;
  // Without the bytes that it moves.
  double attention_seconds(const graph::Work& w, bool backward, DType t) const;
  // A ring of the ranks of the collective's axis; 0 in a group of one.
  double collective_seconds(const comm::CollectiveCall& c, const comm::Layout& layout) const;
};

// That each rank sends, and receives, in a ring: (n - 1) / n of the tensor, twice in an all-reduce.
double ring_bytes(const comm::CollectiveCall& c, const comm::Layout& layout);

// The devices of configs/devices; the words are those of `tfm-plan --device`.
enum class Target : std::uint8_t { cpu, h200, h100, a100, a100_40gb, l40s, b200 };
constexpr config::Words<7> words(Target) {
  return {"cpu", "h200", "h100", "a100", "a100-40gb", "l40s", "b200"};
}
DeviceModel gpu_model(Target gpu);
// The one in the table that is called so by its driver; none of another.
std::optional<Target> target_of(std::string_view gpu, std::int64_t memory_bytes);

// One rank of `ranks` on one machine. Rates are those of `core`, times the cores that a rank's
// `threads` find: the machine's `cores` are shared by all ranks.
DeviceModel reference_core();
DeviceModel cpu_model(const DeviceModel& core, std::int64_t memory_bytes, int cores, int ranks,
                      int threads);

}  // namespace tfm::plan
