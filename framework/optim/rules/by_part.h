#pragma once
// Helpers of rules that work on whole parts of parameters, such as the query's weight of a fused
// weight of queries, keys and values.
#include "kernels/elementwise.h"
#include "kernels/part_update.h"
#include "kernels/scratch.h"
#include "optim/shards.h"

namespace tfm::optim {

// Calls f.operator()<P>(stream), where P is the type of the parameters.
template <class F>
void on_stream(const Update& u, F&& f) {
  device::on(u.stream, [&](auto& stream) {
    with_float(u.dtype, [&]<class P>() { f.template operator()<P>(stream); });
  });
}

inline const nn::PartSlice& slice_of(const Update& u, const PartRange& r) {
  return u.parameters.slices()[static_cast<std::size_t>(r.part)];
}

// Elements of those of this rank's ranges that are trained and for which chosen(range) holds, in
// the order of parts.
template <class P, class Chosen>
std::span<const kernels::PartElements<Accum<P>, P>> part_elements(const Update& u,
                                                                  Chosen&& chosen) {
  using T = Accum<P>;
  thread_local std::vector<kernels::PartElements<T, P>> ranges;  // a step allocates nothing
  ranges.clear();
  for (const PartRange& r : u.shards.parts) {
    if (r.group < 0 || !chosen(r)) continue;
    const Shape& full = slice_of(u, r).full;
    ranges.push_back({r.count(), r.begin, full[0], full.rank() > 1 ? full[1] : 1, r.part, r.decay,
                      u.flat.weights_of<P>(r), u.flat.gradients_of<T>(r), u.state<T>(r, 0),
                      u.state<T>(r, 1), u.flat.average_of<T>(r)});
  }
  return ranges;
}

template <class Stream>
void clear(Stream& stream, void* memory, std::int64_t bytes) {
  kernels::fill(stream, kernels::FillArgs<double>{bytes / static_cast<std::int64_t>(sizeof(double)),
                                                  0, static_cast<double*>(memory)});
}

// Bytes of one PartSquares per part.
inline std::int64_t squares_bytes(const nn::ParameterSet& parameters) {
  return std::ssize(parameters.slices()) * static_cast<std::int64_t>(sizeof(kernels::PartSquares));
}
inline void all_reduce(const Update& u, kernels::PartSquares* squares) {
  u.calls->next({squares,
                 DType::f64,
                 {squares_bytes(u.parameters) / static_cast<std::int64_t>(sizeof(double))}});
}
// All-reduce of `bytes` bytes of sums over the ranks of this pipeline stage, which hold the same
// parts.
inline comm::CollectiveCall reduction_of(const comm::Layout& layout, std::int64_t bytes) {
  return {comm::Collective::all_reduce_sum, layout.stage(), bytes, comm::Purpose::optimizer};
}

}  // namespace tfm::optim
