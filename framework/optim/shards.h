#pragma once
// The elements of the flat buffers that a rank updates: all of them, or under ZeRO an equal share
// of every bucket.
#include "optim/rule.h"

namespace tfm::optim {

// A contiguous range of the flat gradients that is reduced as one over `axes`. Its length is a
// multiple of the number of ranks along them.
struct Bucket {
  comm::AxisSet axes;
  comm::AxisSet shared;  // the axes along which ZeRO shards it
  std::int64_t begin = 0, end = 0;
  std::vector<int> parameters;  // those with elements, not only padding, in the range
};

// Cuts the segments into buckets of about `bucket_elements`, or takes segments by layers as
// buckets. Ordered as gradients become final: the last registered parameters first.
std::vector<Bucket> make_buckets(const nn::ParameterSet& parameters, const comm::Layout& layout,
                                 std::int64_t bucket_elements);

// Whether other stages borrow one of its parameters. Its updated shares are then gathered at once.
bool lends(const Bucket& bucket, const nn::ParameterSet& parameters);
// Whether its updated shares are gathered by the next step's program (ZeRO 1 and 2).
bool gathered_by_step(const Bucket& bucket, const nn::ParameterSet& parameters, int zero);
// Number of elements of all buckets that lend.
std::int64_t lending_elements(const std::vector<Bucket>& buckets,
                              const nn::ParameterSet& parameters);

struct ElementRange {
  std::int64_t begin, end;
};
// The range of a bucket that this rank updates under ZeRO.
ElementRange share_of(const Bucket& bucket, const comm::Mesh& mesh);
// Number of elements of a rank's shares of all buckets, the same on every rank.
std::int64_t shared_elements(const std::vector<Bucket>& buckets, const comm::Layout& layout);

// Calls f(index, first, last) for each owned parameter that overlaps [begin, end) of the flat
// buffers with its elements or padding; [first, last) is the overlap.
template <class F>
void each_parameter(const nn::ParameterSet& parameters, std::int64_t begin, std::int64_t end,
                    F&& f) {
  for (const int i : parameters.lying_in(begin, end)) {
    const std::int64_t at = parameters.offset(i);
    f(i, std::max(begin, at), std::min(end, at + parameters.padded_elements(i)));
  }
}

// The layout's sizes are the same on all ranks that hold the same layers.
ShardLayout shard_layout(const nn::ParameterSet& parameters, const comm::Mesh& mesh,
                         const Rule& rule, int zero, const std::vector<Bucket>& buckets);

// Calls f(element of the whole part, element of the flat buffers, count) for each contiguous piece
// of a range.
template <class F>
void each_run(const nn::PartSlice& s, const PartRange& r, F&& f) {
  nn::each_run(s, r.first, r.count(), [&](std::int64_t whole, std::int64_t at, std::int64_t n) {
    f(whole, r.begin + at - r.first, n);
  });
}

}  // namespace tfm::optim
