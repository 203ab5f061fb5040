#pragma once
// What the two ways of attention have in common where ranks share out every sequence
// (core/rows.h): each has two chunks of the queries and of the keys.
#include "ops/attention.h"

namespace tfm::ops {

template <class T>
struct ContextAttention : Attention<T> {
  using Base = Attention<T>;
  using Base::options, Base::batch;

 protected:
  Rows queries() const { return {batch, options.queries, options.share}; }
  Rows keys(int rank) const { return {batch, options.keys, {options.share.ranks, rank}}; }
  // Keys and values of a rank.
  std::int64_t own_elements() const { return keys(0).tokens() * Base::kv_width(); }
  // Of the rows in which queries stand.
  std::int64_t query_stride() const {
    return Base::q_width() + (Base::self() ? Base::kv_width() : 0);
  }

  // Keys and values side by side, the last columns of rows of queries, keys and values.
  void pack(const graph::Exec& e, T* own) const {
    const std::int64_t width = Base::kv_width();
    device::on(e.stream(), [&](auto& s) {
      kernels::copy_rows(s,
                         kernels::CopyRowsArgs<T>{keys(0).tokens(), width,
                                                  e.in(Base::q).template ptr<T>() + Base::q_width(),
                                                  query_stride(), own, width});
    });
  }
  // The gradients of queries, and the first of those of keys and values.
  Tensor query_gradients(const graph::Exec& e) const {
    const graph::GradSlot dq = e.grad_in(Base::q);
    TFM_CHECK(dq && !dq.accumulate && (Base::self() || !e.grad_in(Base::kv).accumulate),
              "the gradients of queries, keys and values have one writer");
    return dq.tensor;
  }
};

}  // namespace tfm::ops
