#pragma once
// Common base of gather and ring attention under context parallelism (core/rows.h): each rank holds
// two chunks of the queries and of the keys.
#include "ops/attention.h"

namespace tfm::ops {

template <class T>
struct ContextAttention : Attention<T> {
  using Base = Attention<T>;
  using Base::options, Base::batch;

 protected:
  Rows queries() const { return {batch, options.queries, options.share}; }
  Rows keys(int rank) const { return {batch, options.keys, {options.share.ranks, rank}}; }
  // Number of elements of a rank's keys and values.
  std::int64_t own_elements() const { return keys(0).tokens() * Base::kv_width(); }
  // Stride of the rows that hold queries.
  std::int64_t query_stride() const {
    return Base::q_width() + (Base::self() ? Base::kv_width() : 0);
  }

  // Copies keys and values, the last columns of fused rows of queries, keys and values, to `own`
  // (keys, 2 KV D).
  void pack(const graph::Exec& e, T* own) const {
    const std::int64_t width = Base::kv_width();
    device::on(e.stream(), [&](auto& s) {
      kernels::copy_rows(s,
                         kernels::CopyRowsArgs<T>{keys(0).tokens(), width,
                                                  e.in(Base::q).template ptr<T>() + Base::q_width(),
                                                  query_stride(), own, width});
    });
  }
  // The gradient of q: of queries or, in self-attention, of fused rows.
  Tensor query_gradients(const graph::Exec& e) const {
    const graph::GradSlot dq = e.grad_in(Base::q);
    TFM_CHECK(dq && !dq.accumulate && (Base::self() || !e.grad_in(Base::kv).accumulate),
              "the gradients of queries, keys and values have one writer");
    return dq.tensor;
  }
};

}  // namespace tfm::ops
