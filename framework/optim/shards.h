#pragma once
// Which elements of the flat buffers a rank updates: all of them, or under ZeRO its equal share of
// every bucket.
#include "optim/rule.h"

namespace tfm::optim {

// A contiguous range of the flat gradients, reduced as one over its axes. Lengths divide by the
// group's size.
struct Bucket {
  comm::AxisSet axes;
  comm::AxisSet shared;  // those of them along which ranks share it out under ZeRO
  std::int64_t begin = 0, end = 0;
  std::vector<int> parameters;
};

// In the order in which gradients become final: the last registered parameters first. Segments by
// layers are buckets.
std::vector<Bucket> make_buckets(const nn::ParameterSet& parameters, const comm::Layout& layout,
                                 std::int64_t bucket_elements);

// Whether other stages borrow one of its parameters: then its updated shares are gathered at once.
bool lends(const Bucket& bucket, const nn::ParameterSet& parameters);
// Whether the next step gathers them, where it reads them.
bool gathered_by_step(const Bucket& bucket, const nn::ParameterSet& parameters, int zero);
// Elements of all buckets that lend.
std::int64_t lending_elements(const std::vector<Bucket>& buckets,
                              const nn::ParameterSet& parameters);

struct ElementRange {
  std::int64_t begin, end;
};
ElementRange share_of(const Bucket& bucket, const comm::Mesh& mesh);  // this rank's
// Elements of all shares of a rank, which are as many on every rank.
std::int64_t shared_elements(const std::vector<Bucket>& buckets, const comm::Layout& layout);

// f(index, first, last) for each parameter with elements of the flat buffers in [begin, end).
template <class F>
void each_parameter(const nn::ParameterSet& parameters, std::int64_t begin, std::int64_t end,
                    F&& f) {
  for (const int i : parameters.lying_in(begin, end)) {
    const std::int64_t at = parameters.offset(i);
    f(i, std::max(begin, at), std::min(end, at + parameters.padded_elements(i)));
  }
}

// Sizes are the same on all ranks that share a layer out alike.
ShardLayout shard_layout(const nn::ParameterSet& parameters, const comm::Mesh& mesh,
                         const Rule& rule, int zero, const std::vector<Bucket>& buckets);

// f(element of the whole part, element of the flat buffers, count) for each contiguous piece of a
// range.
template <class F>
void each_run(const nn::PartSlice& s, const PartRange& r, F&& f) {
  nn::each_run(s, r.first, r.count(), [&](std::int64_t whole, std::int64_t at, std::int64_t n) {
    f(whole, r.begin + at - r.first, n);
  });
}

}  // namespace tfm::optim
