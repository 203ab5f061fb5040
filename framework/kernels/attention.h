#pragma once
// Scaled dot-product attention (Vaswani et al. 2017) in tiles, with recomputation in backward (Dao
// et al. 2022). No (T, S) matrix of scores is stored: forward keeps one log-sum-exp per row, from
// which backward recomputes the scores.
#include <cstdint>

#include "core/dtype.h"
#include "core/visibility.h"
#include "device/stream.h"
#include "kernels/dropout.h"
#include "kernels/scratch.h"

namespace tfm::kernels {

template <class T>
struct AttentionArgs {
  // Heads of this rank. kv_heads divides heads; query head h reads key head h / (heads/kv_heads).
  std::int64_t batch = 0, heads = 0, kv_heads = 0;
  std::int64_t queries = 0, keys = 0;  // T and S of one sequence
  std::int64_t head_size = 0;          // D
  // Head h of row r of sequence b starts at base + (b * length + r) * stride + h * D, where length
  // is T for q, and kv_length for k and v.
  const T* q = nullptr;
  const T* k = nullptr;
  const T* v = nullptr;
  std::int64_t q_stride = 0, kv_stride = 0;
  T* out = nullptr;  // (B*T, H*D) with out_stride
  std::int64_t out_stride = 0;
  // (B, H, T): natural logarithm of the sum of exp(score); -inf if no key is visible.
  Accum<T>* lse = nullptr;
  Accum<T> scale = 1;
  Accum<T> softcap = 0;  // c: a scaled product x becomes c tanh(x / c); 0: none
  // Key s is visible to query t if
  //   visible:     it sees the key's position; the last query is at that of the last key
  //   k_segments:  the key's segment is >= 0 (negative: padding)
  //   q_segments:  the query's segment equals the key's (read only with k_segments)
  Visibility visible;
  // (B) or null, beside no other landmarks: positions before it see each other, too.
  const std::int32_t* prefixes = nullptr;
  const std::int32_t* k_segments = nullptr;  // (B*keys_total) or null
  const std::int32_t* q_segments = nullptr;  // (B*queries_total) or null
  bool right_padded = false;                 // negative k_segments come last in every sequence
  // (heads, queries + keys - 1) or null: [h][s - t + queries - 1] is added to the score.
  const Accum<T>* bias = nullptr;
  // Dropout on the weights. Element index of (b,h,t,s):
  //   (((first_sequence + sequence_offset + b) * heads_total + head_offset + h) * queries_total
  //     + query_offset + t) * round_up(keys_total, 4) + key_offset + s
  Dropout dropout;
  std::int64_t sequence_offset = 0, head_offset = 0, heads_total = 0;
  std::int64_t kv_length = 0;  // rows between the first keys of consecutive sequences; 0: S
  // The queries (keys) are those of their sequence from query_offset (key_offset) on. A total of 0
  // means T (S), that is, all of them.
  std::int64_t query_offset = 0, queries_total = 0;
  std::int64_t key_offset = 0, keys_total = 0;

  constexpr std::int64_t all_queries() const { return queries_total ? queries_total : queries; }
  constexpr std::int64_t all_keys() const { return keys_total ? keys_total : keys; }
  // `visible` by indices t and s, without and with the prefix of a sequence.
  constexpr Visibility visible_by_index() const { return by_index(visible); }
  constexpr Visibility visible_by_index(std::int64_t b) const {
    Visibility v = visible;
    if (prefixes) v.beyond.prefix = prefixes[b];
    return by_index(v);
  }
  constexpr bool has_landmarks() const { return prefixes || visible.beyond.any(); }
  // Indices of a query in q_segments and of a key in k_segments.
  constexpr std::int64_t segment_of_query(std::int64_t b, std::int64_t t) const {
    return b * all_queries() + query_offset + t;
  }
  constexpr std::int64_t segment_of_key(std::int64_t b, std::int64_t s) const {
    return b * all_keys() + key_offset + s;
  }

 private:
  constexpr Visibility by_index(const Visibility& v) const {
    return v.from(query_offset + all_keys() - all_queries(), key_offset);
  }
};

template <class T>
AttentionExtents extents_of(const AttentionArgs<T>& a) {
  return {.batch = a.batch,
          .heads = a.heads,
          .kv_heads = a.kv_heads,
          .queries = a.queries,
          .keys = a.keys,
          .head_size = a.head_size,
          .visible = a.visible_by_index(),
          .segments = a.k_segments != nullptr,
          .bias = a.bias != nullptr,
          .dropout = a.dropout.p > 0,
          .softcap = a.softcap > 0,
          .prefixes = a.prefixes != nullptr,
          .lengths = a.right_padded && !a.q_segments};
}

template <class T>
struct AttentionBackwardArgs {
  // out and lse are read. If k and v are a part of the keys, they are those of attention to all
  // keys.
  AttentionArgs<T> forward;
  const T* dout = nullptr;  // laid out as out
  T* dq = nullptr;          // with the strides of q, k and v; assigned
  T* dk = nullptr;
  T* dv = nullptr;
  // (B, heads, queries + keys - 1) or null: each sequence's term of the gradient of bias; assigned.
  Accum<T>* dbias = nullptr;
};

// Score of (t, s): scale * q[t] . k[s], softly capped (Gemma Team 2024, 2.1), + bias. A query that
// sees no key yields zeros and passes no gradient; a key that no query sees gets none. On CPUs,
// scratch memory is per thread, linear in S and kept between calls. Tiles of which no query sees a
// key cost nothing.
template <class T>
void attention(cpu::Stream&, const AttentionArgs<T>&);
template <class T>
void attention_backward(cpu::Stream&, const AttentionBackwardArgs<T>&);
template <class T>
void attention(cuda::Stream&, const AttentionArgs<T>&);
template <class T>
void attention_backward(cuda::Stream&, const AttentionBackwardArgs<T>&);

// Merges attention to a part of the keys into that to the parts before it: outputs are averaged
// with weights exp(lse) (Milakov and Gimelshein 2018; Liu et al. 2023). A row that sees no key in
// either keeps zeros.
template <class T>
struct AttentionMergeArgs {
  std::int64_t batch = 0, heads = 0, queries = 0, head_size = 0;
  const T* part = nullptr;             // (B*T, H*D)
  const Accum<T>* part_lse = nullptr;  // (B, H, T)
  Accum<T>* out = nullptr;             // (B*T, H*D)
  Accum<T>* lse = nullptr;             // (B, H, T)
  bool first = false;                  // the first part: out and lse are assigned
};
template <class T>
void attention_merge(cpu::Stream&, const AttentionMergeArgs<T>&);
template <class T>
void attention_merge(cuda::Stream&, const AttentionMergeArgs<T>&);

// Attention bias from a learned table of distance buckets (T5, Raffel et al. 2020):
// bias[h][i] = table[h][bucket[i]].
template <class T>
struct BucketBiasArgs {
  std::int64_t heads = 0, distances = 0, buckets = 0;
  const std::int32_t* bucket = nullptr;  // (distances), in [0, buckets)
  const T* table = nullptr;              // (heads, buckets)
  Accum<T>* bias = nullptr;              // (heads, distances)
};
template <class T>
struct BucketBiasBackwardArgs {
  std::int64_t batch = 0, heads = 0, distances = 0, buckets = 0;
  const std::int32_t* bucket = nullptr;
  const Accum<T>* dbias = nullptr;  // (batch, heads, distances); summed in float64 in a fixed order
  Accum<T>* dtable = nullptr;       // (heads, buckets)
  bool accumulate = false;
};
template <class T>
void bucket_bias(cpu::Stream&, const BucketBiasArgs<T>&);
template <class T>
void bucket_bias_backward(cpu::Stream&, const BucketBiasBackwardArgs<T>&);
template <class T>
void bucket_bias(cuda::Stream&, const BucketBiasArgs<T>&);
template <class T>
void bucket_bias_backward(cuda::Stream&, const BucketBiasBackwardArgs<T>&);

}  // namespace tfm::kernels
