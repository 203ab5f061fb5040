#pragma once
// The kernels once more in float64 and straight loops, written from their definitions: what every
// device's kernels are compared with.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/philox.h"
#include "core/visibility.h"
#include "kernels/activation.h"

namespace tfm::reference {

using Values = std::vector<double>;

// (rows, cols) = op(a) op(b)
inline Values gemm(bool ta, bool tb, std::int64_t m, std::int64_t n, std::int64_t k,
                   const Values& a, std::int64_t lda, const Values& b, std::int64_t ldb) {
  Values c(m * n);
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t p = 0; p < k; ++p)
        c[i * n + j] +=
            (ta ? a[p * lda + i] : a[i * lda + p]) * (tb ? b[j * ldb + p] : b[p * ldb + j]);
  return c;
}

inline Values norm(std::int64_t rows, std::int64_t cols, const Values& x, const Values& gain,
                   const Values& shift, double eps, bool rms) {
  Values y(x.size());
  for (std::int64_t r = 0; r < rows; ++r) {
    double mean = 0, var = 0;
    if (!rms)
      for (std::int64_t c = 0; c < cols; ++c) mean += x[r * cols + c] / cols;
    for (std::int64_t c = 0; c < cols; ++c)
      var += (x[r * cols + c] - mean) * (x[r * cols + c] - mean) / cols;
    for (std::int64_t c = 0; c < cols; ++c)
      y[r * cols + c] = (x[r * cols + c] - mean) / std::sqrt(var + eps) * gain[c] +
                        (shift.empty() ? 0 : shift[c]);
  }
  return y;
}

inline double activation(kernels::Activation kind, double x) {
  switch (kind) {
    case kernels::Activation::relu:
      return std::max(x, 0.0);
    case kernels::Activation::tanh:
      return std::tanh(x);
    case kernels::Activation::silu:
      return x / (1 + std::exp(-x));
    case kernels::Activation::gelu:
      return x * 0.5 * std::erfc(-x / std::sqrt(2.0));
    case kernels::Activation::gelu_tanh:
      return 0.5 * x *
             (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    case kernels::Activation::clamped:
      x = std::min(x, 7.0);
      return x / (1 + std::exp(-1.702 * x));
  }
  return 0;
}
// What the activation of a gate is multiplied by.
inline double lifted(kernels::Activation kind, double up) {
  return kind == kernels::Activation::clamped ? 1 + std::clamp(up, -7.0, 7.0) : up;
}

inline Values activation(kernels::Activation kind, bool gated, std::int64_t rows, std::int64_t cols,
                         const Values& x) {
  Values y(rows * cols);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      y[r * cols + c] =
          gated ? activation(kind, x[r * 2 * cols + c]) * lifted(kind, x[(r * 2 + 1) * cols + c])
                : activation(kind, x[r * cols + c]);
  return y;
}

// Factor that dropout gives to one element.
inline double dropout_factor(float p, const RandomKey& key, std::uint64_t element) {
  if (p == 0) return 1;
  const double threshold = std::floor(static_cast<double>(p) * 4294967296.0);
  return key.word(element) >= threshold ? 1 / (1 - static_cast<double>(p)) : 0;
}

struct Attention {
  std::int64_t batch, heads, kv_heads, queries, keys, size;
  double scale;
  Visibility by_position;
  Values bias;                                       // (heads, queries + keys - 1) or empty
  std::vector<std::int32_t> q_segments, k_segments;  // of all queries and keys, or empty
  float p;
  RandomKey key;
  std::int64_t sequence_offset, head_offset, heads_total;
  std::int64_t query_offset = 0, queries_total = 0;  // 0: queries
  std::int64_t key_offset = 0, keys_total = 0;       // 0: keys
  double softcap = 0;
  std::vector<std::int32_t> prefixes = {};  // of each sequence, or empty

  double capped(double x) const { return softcap > 0 ? softcap * std::tanh(x / softcap) : x; }
  std::int64_t all_queries() const { return queries_total ? queries_total : queries; }
  std::int64_t all_keys() const { return keys_total ? keys_total : keys; }
  std::int64_t query_at(std::int64_t t) const {  // its position
    return query_offset + t + all_keys() - all_queries();
  }
  // What is added to the score of a visible key.
  double added(std::int64_t h, std::int64_t t, std::int64_t s) const {
    const auto& beyond = by_position.beyond;
    return (bias.empty() ? 0 : bias[h * (queries + keys - 1) + s - t + queries - 1]) +
           (beyond.repeated(query_at(t), key_offset + s) ? std::log(1.0 + beyond.random) : 0);
  }
  bool visible(std::int64_t b, std::int64_t t, std::int64_t s) const {
    const std::int64_t query = query_at(t), key_at = key_offset + s, distance = key_at - query;
    const auto& beyond = by_position.beyond;
    const bool within = !prefixes.empty() && query < prefixes[b] && key_at < prefixes[b];
    if (beyond.any() && (query < beyond.from || query >= beyond.to)) return false;
    if ((distance > by_position.right || -distance > by_position.left) && !within &&
        !(beyond.any() && beyond.sees(query, key_at)))
      return false;
    if (k_segments.empty()) return true;
    const std::int32_t segment = k_segments[b * all_keys() + key_offset + s];
    return segment >= 0 &&
           (q_segments.empty() || q_segments[b * all_queries() + query_offset + t] == segment);
  }
  // Of dropout; h: of this rank's heads.
  std::uint64_t element(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t s) const {
    const std::int64_t head = (sequence_offset + b) * heads_total + head_offset + h,
                       row = head * all_queries() + query_offset + t;
    return static_cast<std::uint64_t>(row * ((all_keys() + 3) / 4 * 4) + key_offset + s);
  }
  // q (B,T,H,D), k and v (B,S,G,D) -> out (B,T,H,D); lse (B,H,T)
  void operator()(const Values& q, const Values& k, const Values& v, Values& out,
                  Values& lse) const {
    out.assign(batch * queries * heads * size, 0);
    lse.assign(batch * heads * queries, -std::numeric_limits<double>::infinity());
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t t = 0; t < queries; ++t) row(b, h, t, q, k, v, out, lse);
  }

 private:
  void row(std::int64_t b, std::int64_t h, std::int64_t t, const Values& q, const Values& k,
           const Values& v, Values& out, Values& lse) const {
    const std::int64_t g = h / (heads / kv_heads);
    auto kv = [&](std::int64_t s, std::int64_t d) {
      return ((b * keys + s) * kv_heads + g) * size + d;
    };
    const std::int64_t at = ((b * queries + t) * heads + h) * size;
    Values score(keys);
    double sum = 0;
    for (std::int64_t s = 0; s < keys; ++s) {
      if (!visible(b, t, s)) continue;
      for (std::int64_t d = 0; d < size; ++d) score[s] += scale * q[at + d] * k[kv(s, d)];
      score[s] = capped(score[s]) + added(h, t, s);
      sum += std::exp(score[s]);
    }
    if (sum == 0) return;
    lse[(b * heads + h) * queries + t] = std::log(sum);
    for (std::int64_t s = 0; s < keys; ++s) {
      if (!visible(b, t, s)) continue;
      const double w = std::exp(score[s]) / sum * dropout_factor(p, key, element(b, h, t, s));
      for (std::int64_t d = 0; d < size; ++d) out[at + d] += w * v[kv(s, d)];
    }
  }
};

inline double cross_entropy(const double* logits, std::int64_t cols, std::int32_t label,
                            double smoothing) {
  if (label < 0) return 0;
  double sum = 0, all = 0;
  for (std::int64_t c = 0; c < cols; ++c) sum += std::exp(logits[c]), all += logits[c];
  return std::log(sum) - (1 - smoothing) * logits[label] - smoothing / cols * all;
}

}  // namespace tfm::reference
