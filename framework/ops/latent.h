#pragma once
// Ops of latent attention (DeepSeek-AI 2024a, section 2.1), whose keys and values are made from a
// latent row of L columns. Sizes are those of kernels/latent_heads.h.
#include "core/rows.h"
#include "graph/recorder.h"
#include "kernels/latent_heads.h"

namespace tfm::ops {

struct LatentOptions {
  kernels::LatentSizes sizes;
  std::vector<double> frequency;  // (R / 2)
  double factor = 1;              // of turned columns
  Rows rows;
};
// Rows of queries, keys and values for self-attention with H = KV heads of D columns, (N, 3 H D),
// from q (N, H D), kv (N, H (P + V)) and the shared key (N, R).
graph::Value latent_heads(graph::Recorder& r, graph::Value q, graph::Value kv, graph::Value shared,
                          const LatentOptions& options);
// (N, H V): the first V of D columns of each head of y (N, H D). No other op that wants a gradient
// may read y.
graph::Value latent_values(graph::Recorder& r, graph::Value y, const kernels::LatentSizes& sizes);

// The same attention to latent rows themselves, without keys and values of heads (section 2.1.2 and
// appendix C); forward only. W (H (P + V), L) makes kv of a latent row.
// Queries and the key that is the value, too: (N, (H + 1) (L + R)), of each head [W_k^T q |
// turned], then [latent | turned].
graph::Value absorbed_heads(graph::Recorder& r, graph::Value q, graph::Value latent,
                            graph::Value shared, graph::Value weight, const LatentOptions& options);
// (N, H V) = W_v times the first L of L + R columns of each head of y.
graph::Value absorbed_values(graph::Recorder& r, graph::Value y, graph::Value weight,
                             const kernels::LatentSizes& sizes);

}  // namespace tfm::ops
