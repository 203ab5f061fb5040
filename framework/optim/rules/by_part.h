#pragma once
// Rules that look at whole parts of parameters: a query's weight, not the query's, key's and
// value's that are stored as one. They run on CPUs.
#include "kernels/part_update.h"
#include "optim/shards.h"

namespace tfm::optim {

// f(stream, P{}) where P is the type of the parameters; config validation has refused GPUs.
template <class F>
void on_host(const Update& u, F&& f) {
  auto* const stream = std::get_if<cpu::Stream*>(&u.stream);
  TFM_CHECK(stream, "this optimizer is not implemented on GPUs");
  with_float(u.dtype, [&]<class P>() { f.template operator()<P>(**stream); });
}

// So many sums in the rule's workspace, from `first` bytes on.
template <class S>
std::span<S> clear_sums(const Update& u, std::size_t n, std::size_t first = 0) {
  const std::span<S> sums(reinterpret_cast<S*>(static_cast<std::byte*>(u.flat.workspace) + first),
                          n);
  std::ranges::fill(sums, S{});
  return sums;
}
inline void all_reduce(const Update& u, std::span<SquareSum> sums) {
  u.calls->next(
      {sums.data(), DType::f64, {static_cast<std::int64_t>(sums.size_bytes() / sizeof(double))}});
}
// Sums of one collective over all ranks that have the same parts.
template <class S>
comm::CollectiveCall reduction_of(const comm::Layout& layout, std::size_t sums) {
  return {comm::Collective::all_reduce_sum, layout.stage(),
          static_cast<std::int64_t>(sums * sizeof(S))};
}
// Where an element of a part is counted, it is so by one of the ranks that update it.
template <class T>
void add_squares(cpu::Stream& stream, const PartRange& r, const T* x, SquareSum& to) {
  if (r.counted) kernels::add_squares(stream, x, kernels::Range{r.begin, r.end}, to);
}

// The weights of `count` elements of a range from its element `first` on, and what follows from
// them.
template <class P>
void descend(cpu::Stream& stream, const Update& u, const PartRange& r, std::int64_t first,
             std::int64_t count, const Accum<P>* direction, double shrink, double step) {
  using T = Accum<P>;
  const auto from = [&](auto* p) { return p ? p + first : nullptr; };
  kernels::descend(
      stream, kernels::DescendArgs<T, P>{count, shrink, step, u.numbers->update.keep, direction,
                                         from(u.weights<T>(r)), from(u.average<T>(r)),
                                         from(u.rounded<P>(r))});
}

}  // namespace tfm::optim
