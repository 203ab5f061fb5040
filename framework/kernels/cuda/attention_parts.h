#pragma once
// Shared by all attention kernels: heads and dropout. Scores are multiplied by log2(e) so that exp2
// can be used.
#include <algorithm>

#include "kernels/attention.h"
#include "kernels/cuda/attention_mask.h"
#include "kernels/cuda/block.h"
#include "kernels/scratch.h"

namespace tfm::kernels::gpu {

inline constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;
inline constexpr int kMostHeadSize = 256;

// Intermediate results of backward in device memory.
template <class T>
struct BackwardScratch {
  const std::int32_t* real = nullptr;  // (B) or null, as Mask::real
  Accum<T>* delta = nullptr;           // (B, H, T): sum of out * dout over a row
  // (B, H, T): lse times log2(e), 0 if no key is visible. Tensor cores only.
  Accum<T>* base = nullptr;
  // (B, H, tiles of queries, width) or null, see attention_diagonals.h.
  Accum<T>* diagonals = nullptr;
  std::int64_t width = 0;
};

// On tensor cores, for 16-bit types with rows of whole 16-byte chunks.
template <class T>
void tensor_forward(cuda::Stream&, const AttentionArgs<T>&, const std::int32_t* real);
template <class T>
void tensor_backward_keys(cuda::Stream&, const AttentionBackwardArgs<T>&,
                          const BackwardScratch<T>&);
template <class T>
void tensor_backward_queries(cuda::Stream&, const AttentionBackwardArgs<T>&,
                             const BackwardScratch<T>&);
// The gradients of queries, keys and values at once, of queries that see no other keys than these:
// at most 64 of each, heads of at most 128 elements, no bias.
template <class T>
void tensor_backward_short(cuda::Stream&, const AttentionBackwardArgs<T>&,
                           const std::int32_t* real);
inline constexpr int kTensorRows = kAttentionTensorRows, kFew = 32;  // rows of a tile
// In ordinary arithmetic of Accum<T>, for all types and sizes.
template <class T>
void plain_forward(cuda::Stream&, const AttentionArgs<T>&, const std::int32_t* real);
template <class T>
void plain_backward(cuda::Stream&, const AttentionBackwardArgs<T>&, const BackwardScratch<T>&);
template <class T>
inline constexpr int kPlainRows = attention_plain_rows(sizeof(Accum<T>));

// One head of one sequence. Offsets are those of its first row, in elements.
template <class T, bool Landmarks>
struct Head {
  const AttentionArgs<T>& a;
  int b, h;
  Mask<Landmarks> mask;
  std::int64_t of_keys;

  __device__ Head(const AttentionArgs<T>& args, const std::int32_t* real, int sequence, int head)
      : a(args),
        b(sequence),
        h(head),
        mask{static_cast<int>(a.queries),
             static_cast<int>(a.keys),
             real ? real[b] : static_cast<int>(a.keys),
             Mask<Landmarks>::narrow(a.visible_by_index(b)),
             a.k_segments != nullptr,
             a.k_segments && a.q_segments},
        of_keys(b * (a.kv_length ? a.kv_length : a.keys) * a.kv_stride +
                h / (static_cast<int>(a.heads) / static_cast<int>(a.kv_heads)) * a.head_size) {}

  __device__ std::int64_t q_at() const { return b * a.queries * a.q_stride + h * a.head_size; }
  __device__ std::int64_t out_at() const { return b * a.queries * a.out_stride + h * a.head_size; }
  __device__ std::int64_t kv_at() const { return of_keys; }
  __device__ std::int64_t lse_at() const { return (std::int64_t{b} * a.heads + h) * a.queries; }
  __device__ std::int32_t q_segment(int t) const {
    return mask.documents && t < mask.queries ? a.q_segments[a.segment_of_query(b, t)] : 0;
  }
  __device__ std::int32_t k_segment(int s) const {
    return mask.padding && s < mask.keys ? a.k_segments[a.segment_of_key(b, s)] : 0;
  }
  // [s - t] is the bias of (t, s).
  __device__ const Accum<T>* bias() const {
    return a.bias + h * (a.queries + a.keys - 1) + a.queries - 1;
  }
};

// Starts to copy words [first, first + n) of `from`; those outside [begin, end) are set to zero.
template <class W>
__device__ void load_words(W* to, const W* from, int first, int n, int begin, int end, int thread) {
  if (thread < 0 || thread >= n) return;
  const int i = first + thread;
  const bool inside = i >= begin && i < end;
  cuda::copy_async<4>(to + thread, from + (inside ? i : begin), inside ? 4 : 0);
}

// Dropout mask of one head's weights.
class Dropped {
 public:
  template <class T, bool Landmarks>
  __device__ explicit Dropped(const Head<T, Landmarks>& head)
      : key_(head.a.dropout.current()),
        threshold_(head.a.dropout.threshold()),
        row_((head.a.all_keys() + 3) / 4),
        skip_(static_cast<int>(head.a.key_offset % 4)) {
    const AttentionArgs<T>& a = head.a;
    first_ = static_cast<std::uint64_t>(
        ((a.dropout.first_sequence() + a.sequence_offset + head.b) * a.heads_total + a.head_offset +
         head.h) *
            a.all_queries() * row_ +
        a.query_offset * row_ + a.key_offset / 4);
  }
  // Bit i is set if (t, s + i) is kept; s must be a multiple of 4.
  __device__ unsigned four(int t, int s) const {
    unsigned bits = 0;
    for (int i = 0; i <= (skip_ > 0); ++i) bits |= block(t, s / 4 + i) << 4 * i;
    return bits >> skip_ & 15u;
  }

 private:
  __device__ unsigned block(int t, int i) const {
    const Philox4 w = key_.block(first_ + static_cast<std::uint64_t>(t * row_ + i));
    return (w[0] >= threshold_) | (w[1] >= threshold_) << 1 | (w[2] >= threshold_) << 2 |
           (w[3] >= threshold_) << 3;
  }

  RandomKey key_;
  std::uint32_t threshold_;
  std::int64_t row_;  // random blocks of four elements per row
  int skip_;          // elements of the first block before the first key
  std::uint64_t first_;
};

// Calls f.operator()<flag>().
template <class F>
void with_flag(bool flag, F&& f) {
  flag ? f.template operator()<true>() : f.template operator()<false>();
}

// Tile of queries of this thread block in a grid of (tiles of queries, heads, sequences). If later
// tiles see more keys, they come first.
__device__ inline unsigned tile_of_queries(const Visibility& visible) {
  return visible.right < Visibility::kUnlimited ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
}

// Calls f.operator()<D>() with the least tile width D that holds a head.
template <class F>
void with_head_size(std::int64_t size, F&& f) {
  if (size <= 32) return f.template operator()<32>();
  if (size <= 64) return f.template operator()<64>();
  if (size <= 96) return f.template operator()<96>();
  if (size <= 128) return f.template operator()<128>();
  f.template operator()<256>();
}

// What there may be between products and weights, and in visibility: nothing and a window; a bias,
// segments or dropout; also a soft cap, which is there; also landmarks, which are there, and a cap
// or none.
enum class Scores : std::uint8_t { plain, added, capped, landmarks };
// Calls f.operator()<scores>(). biased: in backward, its gradient is wanted.
template <class T, class F>
void with_scores(const AttentionArgs<T>& a, F&& f, bool biased = false) {
  if (a.has_landmarks()) return f.template operator()<Scores::landmarks>();
  if (a.softcap > 0) return f.template operator()<Scores::capped>();
  if (a.bias || a.k_segments || a.dropout.p > 0 || biased)
    return f.template operator()<Scores::added>();
  f.template operator()<Scores::plain>();
}

}  // namespace tfm::kernels::gpu
