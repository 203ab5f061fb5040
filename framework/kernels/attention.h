#pragma once
// Scaled dot-product attention in tiles (Vaswani et al. 2017; the tiling and its recomputing
// backward as in Dao et al. 2022). No (T, S) matrix of scores is stored: forward keeps one
// log-sum-exp a row, backward recomputes the rest.
#include <cstdint>

#include "core/dtype.h"
#include "device/stream.h"
#include "kernels/dropout.h"

namespace tfm::kernels {

template <class T>
struct AttentionArgs {
  std::int64_t batch = 0, heads = 0, kv_heads = 0;  // of this rank; heads % kv_heads == 0, query
                                                    // head h reads group h / (heads/kv_heads)
  std::int64_t queries = 0, keys = 0;               // T and S of one sequence
  std::int64_t head_size = 0;                       // D
  // Row r of sequence b starts at base + (b*length + r) * stride, length T, or kv_length of k and
  // v; head h at + h * D.
  const T* q = nullptr;
  const T* k = nullptr;
  const T* v = nullptr;
  std::int64_t q_stride = 0, kv_stride = 0;
  T* out = nullptr;  // (B*T, H*D) with out_stride
  std::int64_t out_stride = 0;
  Accum<T>* lse =
      nullptr;  // (B, H, T) natural log of the sum of exp(score); -inf where no key is visible
  Accum<T> scale = 1;
  // Key s is visible to query t where every one of these holds:
  bool causal = false;  // s <= t + causal_shift()
  const std::int32_t* k_segments =
      nullptr;  // (B*keys_total) or null; not negative: a negative segment is padding
  const std::int32_t* q_segments = nullptr;  // (B*queries_total) or null; equal to the key's
                                             // segment (read only beside k_segments)
  bool right_padded = false;       // in every sequence negative k_segments stand behind the others
  const Accum<T>* bias = nullptr;  // (heads, queries + keys - 1) or null: [h][s - t + queries - 1]
                                   // is added to the score
  // Dropout on the weights. Element index of (b,h,t,s):
  // (((first_sequence+sequence_offset+b)*heads_total + head_offset+h)*queries_total +
  // query_offset+t) * round_up(keys_total,4) + key_offset+s.
  Dropout dropout;
  std::int64_t sequence_offset = 0, head_offset = 0, heads_total = 0;
  std::int64_t kv_length = 0;  // rows from one sequence's first key to the next one's; 0: S
  // The queries are a part of those of their sequence, from query_offset on; 0: T, all of them. The
  // keys, too; 0: S.
  std::int64_t query_offset = 0, queries_total = 0;
  std::int64_t key_offset = 0, keys_total = 0;

  constexpr std::int64_t all_queries() const { return queries_total ? queries_total : queries; }
  constexpr std::int64_t all_keys() const { return keys_total ? keys_total : keys; }
  // The last key that the first query sees; the last query of a sequence sees its last key.
  constexpr std::int64_t causal_shift() const {
    return query_offset + all_keys() - all_queries() - key_offset;
  }
  // Of a query among all of them in the segments of queries, and of a key.
  constexpr std::int64_t segment_of_query(std::int64_t b, std::int64_t t) const {
    return b * all_queries() + query_offset + t;
  }
  constexpr std::int64_t segment_of_key(std::int64_t b, std::int64_t s) const {
    return b * all_keys() + key_offset + s;
  }
};

template <class T>
struct AttentionBackwardArgs {
  AttentionArgs<T> forward;  // its out and lse are read here; of a part of the keys, those of all
  const T* dout = nullptr;   // as out
  T* dq = nullptr;           // strides as q, k, v; always assigned
  T* dk = nullptr;
  T* dv = nullptr;
  Accum<T>* dbias = nullptr;  // (B, heads, queries + keys - 1) or null: each sequence's own term of
                              // the gradient of bias; assigned
};

// Score of (t, s): scale * q[t] . k[s] + bias. A row that sees no key yields zeros and passes no
// gradient; a key that no query sees gets none. Scratch is per thread and linear in S; it is kept
// between calls. Keys after the last visible one cost nothing.
template <class T>
void attention(cpu::Stream&, const AttentionArgs<T>&);
template <class T>
void attention_backward(cpu::Stream&, const AttentionBackwardArgs<T>&);
template <class T>
void attention(cuda::Stream&, const AttentionArgs<T>&);
template <class T>
void attention_backward(cuda::Stream&, const AttentionBackwardArgs<T>&);

// Joins attention to a part of the keys with that to the parts before it: their outputs are
// averaged with weights exp(lse) (Milakov and Gimelshein 2018; Liu et al. 2023). A row that sees no
// key in either keeps zeros.
template <class T>
struct AttentionMergeArgs {
  std::int64_t batch = 0, heads = 0, queries = 0, head_size = 0;
  const T* part = nullptr;             // (B*T, H*D)
  const Accum<T>* part_lse = nullptr;  // (B, H, T)
  Accum<T>* out = nullptr;             // (B*T, H*D)
  Accum<T>* lse = nullptr;             // (B, H, T)
  bool first = false;                  // nothing before it: assigned
};
template <class T>
void attention_merge(cpu::Stream&, const AttentionMergeArgs<T>&);
template <class T>
void attention_merge(cuda::Stream&, const AttentionMergeArgs<T>&);

// The attention's bias from a learned table of distance buckets (T5, Raffel et al. 2020):
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
  const Accum<T>* dbias =
      nullptr;  // (batch, heads, distances): added up in float64, in an order that no run changes
  Accum<T>* dtable = nullptr;  // (heads, buckets)
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
