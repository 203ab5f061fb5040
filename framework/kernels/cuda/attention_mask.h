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

// Visibility of keys in one sequence. Kernels that know no landmarks are spared their registers.
template <bool Landmarks>
struct Mask {
  int queries, keys, real;       // real: keys up to the last one that is not padding
  BasicVisibility<int> visible;  // by index
  bool padding, documents;

  static __device__ BasicVisibility<int> narrow(const Visibility& v) {
    if constexpr (Landmarks) return v.as<int>();
    return {static_cast<int>(v.left), static_cast<int>(v.right)};
  }
  // Tiles of N keys that the queries from `first` on see, of which there are at most `rows`.
  template <int N>
  __device__ Tiles keys_of(int first, int rows) const {
    return Tiles::of<N>(visible.keys_of({first, std::min(first + rows, queries)}, {0, real}));
  }
  // Tiles of N queries that see the keys from `first` on, of which there are at most `rows`.
  template <int N>
  __device__ Tiles queries_of(int first, int rows) const {
    if (first >= real) return {};
    return Tiles::of<N>(visible.queries_of({first, std::min(first + rows, real)}, {0, queries}));
  }
  // The first of these tiles from column `from` on, where one begins, of which anything is seen;
  // behind the last one, the end of the columns or more.
  template <int N>
  __device__ int keys_after(int first, int rows, int from) const {
    if (!Landmarks || from >= real) return from;
    const Span<int> seen = visible.keys_of({first, std::min(first + rows, queries)}, {from, real});
    return seen.size() > 0 ? seen.begin / N * N : real;
  }
  template <int N>
  __device__ int queries_after(int first, int rows, int from) const {
    if constexpr (Landmarks)
      while (from < queries && visible.seen({from, std::min(from + N, queries)},
                                            {first, std::min(first + rows, real)}) == Seen::none)
        from += N;
    return from;
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
