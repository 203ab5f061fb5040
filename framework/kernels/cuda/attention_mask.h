#pragma once
// Visibility of keys in attention kernels: which tiles of a sequence they go through, and what is
// hidden in a tile. "Rows" are the side of a tile of scores that a thread block owns, "columns" the
// side over which it loops.
#include "core/visibility.h"
#include "kernels/cuda/block.h"

namespace tfm::kernels::gpu {

// Tiles of columns, the first of which begins at index `begin`; `end`: of their columns that a row
// sees, or that see one.
struct Tiles {
  int begin = 0, end = 0, count = 0;
  template <int N>
  static __device__ Tiles of(Span<int> columns) {
    if (columns.size() == 0) return {};
    const int begin = columns.begin / N * N;
    return {begin, columns.end, (columns.end - begin + N - 1) / N};
  }
};

// Visibility of keys in one sequence.
struct Mask {
  int queries, keys, real;       // real: keys up to the last one that is not padding
  BasicVisibility<int> visible;  // by index
  bool padding, documents;

  // Tiles of N keys that the queries from `first` on see, of which there are at most `rows`.
  template <int N>
  __device__ Tiles keys_of(int first, int rows) const {
    return Tiles::of<N>(visible.keys_of({first, std::min(first + rows, queries)}, {0, real}));
  }
  // Tiles of N queries that see the keys from `first` on, of which there are at most `rows`.
  template <int N>
  __device__ Tiles queries_of(int first, int rows) const {
    return Tiles::of<N>(
        first < real ? visible.queries_of({first, std::min(first + rows, real)}, {0, queries})
                     : Span<int>{});
  }
  __device__ bool sees(int t, int s) const { return t < queries && s < real && visible.sees(t, s); }
  __device__ bool same(std::int32_t q_segment, std::int32_t k_segment) const {
    return !padding || (k_segment >= 0 && (!documents || q_segment == k_segment));
  }
  // Whether a pair of one of the queries and one of the keys may be hidden by its position.
  __device__ bool cuts(Span<int> some_queries, Span<int> some_keys) const {
    return some_queries.end > queries || some_keys.end > real ||
           visible.seen(some_queries, some_keys) != Seen::whole;
  }
};

}  // namespace tfm::kernels::gpu
