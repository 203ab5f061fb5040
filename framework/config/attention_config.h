#pragma once
// The configuration of a layer's mixer.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/options.h"

namespace tfm::config {

// Blocks of positions that see those beside them, the first and the last one, and `random` others
// (Zaheer et al. 2020).
struct BlocksConfig {
  std::int64_t size = 0, random = 0, seed = 0;  // size 0: no blocks
  OtherBlocks others = OtherBlocks::drawn;
  bool operator==(const BlocksConfig&) const = default;
};
// Positions at multiples of a distance (Child et al. 2019; Beltagy et al. 2020, 3.1).
struct StridedConfig {
  std::int64_t step = 0, reach = 0;  // step 0: none; reach 0: any distance
  bool operator==(const StridedConfig&) const = default;
};
struct AttentionConfig {
  std::string type = "softmax";  // of mixer_types()
  // Causal: number of keys that a query sees, itself included; else half of it on each side; 0:
  // all.
  std::int64_t window = 0;
  std::int64_t global_tokens = 0;   // the first positions, which see all and are seen by all
  bool global_projections = false;  // their queries, and keys and values for them, are projected
                                    // by matrices of their own
  StridedConfig strided;
  BlocksConfig blocks;
  bool prefix = false;            // the first part of a text sees itself both ways
  double softcap = 0;             // of scores, before a bias; 0: none
  bool sinks = false;             // each head has one more score, of a key whose value is zero
  bool output_gate = false;       // outputs are multiplied by sigmoids of the layer's input
  std::int64_t query_scalar = 0;  // scores are divided by its square root; 0: d_head
  // Type latent makes n_heads heads of d_head columns from rows of kv_rank columns.
  std::int64_t q_rank = 0;  // of rows from which queries are made; 0: the layer's input
  // Filled where the type is latent: 4 value_size; d_head / 3, even; and d_head - rope_size.
  std::int64_t kv_rank = 0, rope_size = 0, value_size = 0;
  // Types that recur have a state of d_head times value_size elements for each of n_heads. Filled
  // there: n_heads, of mamba2 1; 4; and value_size with d_head, of mamba2 2 d_model / n_heads.
  std::int64_t key_heads = 0, convolution = 0;
  bool recurs() const;     // the type is one of recurrent_types()
  bool has_state() const;  // heads pass a state from position to position in place of scores
  bool operator==(const AttentionConfig&) const = default;
};
// The types of mixers, and a place for more (models/layer_parts.h).
std::vector<std::string_view>& mixer_types();
// Those whose states pass forwards alone, behind a convolution.
const std::vector<std::string_view>& recurrent_types();

}  // namespace tfm::config
