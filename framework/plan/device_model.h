#pragma once
// A performance model of a kind of device (roofline, Williams et al. 2009), which times a step
// without the device. Times are in seconds, rates in FLOP/s and bytes/s. Descriptions of devices
// are files, see plan/device_file.h.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "comm/mesh.h"
#include "config/options.h"
#include "graph/op.h"

namespace tfm::plan {

// FLOP/s of attention for one head size, counting only scores that queries see: `rate` for long
// sequences, half of it at `half_length` keys under a causal mask.
struct AttentionRate {
  double rate = 0, half_length = 0;
};
struct AttentionRates {
  AttentionRate forward, backward;
};

struct DeviceModel {
  struct Rates {
    double peak = 0;               // datasheet; the base of utilization
    double product = 0;            // large matrix products
    double product_half_size = 0;  // cube root of m n k at which a product reaches half of it
    AttentionRates head_64, head_128;
  };
  struct Link {
    double latency = 0;    // of one hop of a ring
    double bandwidth = 0;  // per rank, one direction
  };

  std::string name;
  std::string rates_from = "nothing";
  config::DeviceKind kind = config::DeviceKind::cuda;
  std::int64_t memory_bytes = 0;   // of one rank
  std::int64_t reserve_bytes = 0;  // of memory_bytes, what a plan leaves free
  Rates wide, half;                // fp32; bf16 and fp16
  // Share of the product and attention rates that steps sustain, with kernels back to back at the
  // power limit.
  double sustained = 1;
  // Memory bandwidth of a copy, counting reads and writes.
  double bandwidth = 0;
  double launch = 0;  // least time between the starts of two kernels
  // Products are cut into tiles for these; 0: no loss from tiles is modelled.
  std::int64_t multiprocessors = 0;
  std::int64_t ranks_per_node = 8;
  Link node, network;     // links within a node and between nodes
  bool overlaps = false;  // collectives run concurrently with kernels

  // Sets the fp32 rates of TF32: half of the 16-bit rates, as in datasheets.
  void use_tf32() { wide.peak = half.peak / 2, wide.product = half.product / 2; }
  const Rates& rates(DType t) const { return is_half(t) ? half : wide; }
  std::int64_t usable_bytes() const { return memory_bytes - reserve_bytes; }
  // Seconds of all repetitions of a product with factors of type `t`, including its memory traffic.
  double product_seconds(const graph::Work::Product& p, DType t) const;
  // Seconds of the arithmetic alone.
  double attention_seconds(const graph::Work& w, bool backward, DType t) const;
  // Seconds of a ring over the collective's group; of a message for its sender. 0 for a barrier and
  // in a group of one.
  double collective_seconds(const comm::CollectiveCall& c, const comm::Layout& layout) const;
};

// Bytes that a rank sends: (n - 1) / n of the tensor in a ring of n ranks, twice that in an
// all-reduce; the whole tensor in a send or ring_shift; nothing in a receive.
double ring_bytes(const comm::CollectiveCall& c, const comm::Layout& layout);

// The built-in devices, by their words for `tfm-plan --device`.
enum class Target : std::uint8_t { cpu, h200, h100, a100, a100_40gb, l40s, b200 };
constexpr config::Words<7> words(Target) {
  return {"cpu", "h200", "h100", "a100", "a100-40gb", "l40s", "b200"};
}
DeviceModel gpu_model(Target gpu);
// The built-in device with the name that the driver reports and so much memory; nullopt if none.
std::optional<Target> target_of(std::string_view gpu, std::int64_t memory_bytes);

// One core of the built-in CPU description.
DeviceModel reference_core();
// One of `ranks` ranks on a machine with `memory_bytes`. Rates are those of `core` times the cores
// that the rank's `threads` find: all ranks share the machine's `cores`.
DeviceModel cpu_model(const DeviceModel& core, std::int64_t memory_bytes, int cores, int ranks,
                      int threads);

}  // namespace tfm::plan
