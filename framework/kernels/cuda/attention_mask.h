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

__device__ inline BasicVisibility<int> window_of(const Visibility& v) {
  return {static_cast<int>(v.left), static_cast<int>(v.right)};
}
__device__ inline Span<std::int64_t> wide(Span<int> s) { return {s.begin, s.end}; }
__device__ inline Span<int> narrow(Span<std::int64_t> s) {
  return {static_cast<int>(s.begin), static_cast<int>(s.end)};
}

// Visibility with landmarks by indices. Not inlined, so that kernels without them stay as they are.
template <class Visible>
__device__ __noinline__ Span<int> keys_beyond(const Visible& v, int query_at, int key_at,
                                              Span<int> queries, Span<int> keys) {
  return narrow(v.from(query_at, key_at).keys_of(wide(queries), wide(keys)));
}
template <class Visible>
__device__ __noinline__ Span<int> queries_beyond(const Visible& v, int query_at, int key_at,
                                                 Span<int> keys, Span<int> queries) {
  return narrow(v.from(query_at, key_at).queries_of(wide(keys), wide(queries)));
}
template <class Visible>
__device__ __noinline__ bool shown_whole(const Visible& v, int query_at, int key_at,
                                         Span<int> queries, Span<int> keys) {
  return v.from(query_at, key_at).seen(wide(queries), wide(keys)) == Seen::whole;
}
template <class Visible>
__device__ __noinline__ bool shown(const Visible& v, int query_at, int key_at, int t, int s) {
  return v.from(query_at, key_at).sees(t, s);
}

// Visibility of keys in one sequence.
struct Mask {
  int queries, keys, real;       // real: keys up to the last one that is not padding
  BasicVisibility<int> visible;  // by index, where there are no landmarks
  bool padding, documents;
  const Visibility* beyond = nullptr;  // with landmarks, if there are any
  int query_at = 0, key_at = 0;        // of these, positions of the first query and key

  // Tiles of N keys that the queries from `first` on see, of which there are at most `rows`.
  template <int N>
  __device__ Tiles keys_of(int first, int rows) const {
    const Span<int> of{first, std::min(first + rows, queries)}, all{0, real};
    return Tiles::of<N>(beyond ? keys_beyond(*beyond, query_at, key_at, of, all)
                               : visible.keys_of(of, all));
  }
  // Tiles of N queries that see the keys from `first` on, of which there are at most `rows`.
  template <int N>
  __device__ Tiles queries_of(int first, int rows) const {
    if (first >= real) return {};
    const Span<int> of{first, std::min(first + rows, real)}, all{0, queries};
    return Tiles::of<N>(beyond ? queries_beyond(*beyond, query_at, key_at, of, all)
                               : visible.queries_of(of, all));
  }
  // The first of these tiles from column `from` on, where one begins, of which anything is seen;
  // behind the last one, the end of the columns or more.
  template <int N>
  __device__ int keys_after(int first, int rows, int from) const {
    if (!beyond || from >= real) return from;
    const Span<int> seen = keys_beyond(*beyond, query_at, key_at,
                                       {first, std::min(first + rows, queries)}, {from, real});
    return seen.size() > 0 ? seen.begin / N * N : real;
  }
  template <int N>
  __device__ int queries_after(int first, int rows, int from) const {
    if (!beyond || from >= queries) return from;
    const Span<int> seen = queries_beyond(*beyond, query_at, key_at,
                                          {first, std::min(first + rows, real)}, {from, queries});
    return seen.size() > 0 ? seen.begin / N * N : queries;
  }
  __device__ bool sees(int t, int s) const {
    return t < queries && s < real &&
           (beyond ? shown(*beyond, query_at, key_at, t, s) : visible.sees(t, s));
  }
  __device__ bool same(std::int32_t q_segment, std::int32_t k_segment) const {
    return !padding || (k_segment >= 0 && (!documents || q_segment == k_segment));
  }
  // Whether a pair of one of the queries and one of the keys may be hidden by its position.
  __device__ bool cuts(Span<int> some_queries, Span<int> some_keys) const {
    return some_queries.end > queries || some_keys.end > real ||
           !(beyond ? shown_whole(*beyond, query_at, key_at, some_queries, some_keys)
                    : visible.seen(some_queries, some_keys) == Seen::whole);
  }
};

}  // namespace tfm::kernels::gpu
