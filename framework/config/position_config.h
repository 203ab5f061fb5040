#pragma once
// The configuration of positions: of rotary ones and their scaling, and of relative ones.
#include <cstdint>
#include <vector>

#include "config/options.h"

namespace tfm::config {

struct RopeScaling {
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;
  std::int64_t original_max_seq_len = 8192;
  RopeScalingType type = RopeScalingType::llama3;
  double beta_fast = 32, beta_slow = 1;
  bool truncate = true;
  double attention_factor = 0, mscale = 0, mscale_all_dim = 0;  // 0: derived
  bool on() const { return factor != 1 || type == RopeScalingType::longrope; }
  bool operator==(const RopeScaling&) const = default;
};
struct RopeConfig {
  double theta = 10000.0;
  RopeScaling scaling;
  double fraction = 1;  // of a head's columns, its first ones, that turn
  // How many of these columns turn; the product is rounded down.
  std::int64_t columns(std::int64_t all) const {
    return static_cast<std::int64_t>(static_cast<double>(all) * fraction);
  }
  bool operator==(const RopeConfig&) const = default;
};
// What the frequencies of RoPE scaling of type longrope are divided by, of all layers that have it:
// in sequences of up to original_max_seq_len positions, and in longer ones.
struct LongRopeConfig {
  std::vector<double> short_factor, long_factor;
  bool operator==(const LongRopeConfig&) const = default;
};
struct RelativeConfig {  // T5's relative position bias
  std::int64_t buckets = 32, max_distance = 128;
  bool operator==(const RelativeConfig&) const = default;
};

}  // namespace tfm::config
