// Two or four sums a row cross ranks: queries and keys, in forward and in backward.
#include "kernels/width_norm.h"

#include <algorithm>
#include <numeric>

#include "kernels/elementwise.h"
#include "kernels/scratch.h"
#include "ops/ops.h"

namespace tfm::ops {
namespace {

struct WidthNorm final : graph::StagedOp {
  enum In { x, gain };
  enum Out { y, squares };  // squares (groups, rows): sums over all ranks' columns

  std::int64_t rows, cols;
  WidthNormOptions options;
  DType dtype;

  std::string_view kind() const override { return "width_norm"; }
  graph::Saved saved() const override { return {.inputs = {x, gain}, .outputs = {squares}}; }
  bool cheap() const override { return true; }
  std::int64_t workspace_bytes(graph::Phase phase) const override {
    return phase == graph::Phase::backward ? sums() * size_of(accum_type(dtype)) : 0;
  }
  std::int64_t scratch_bytes(graph::Phase phase, DType) const override {
    return phase == graph::Phase::backward
               ? kernels::norm_backward_scratch(rows, std::ranges::max(options.groups),
                                                size_of(dtype))
               : 0;
  }
  graph::Work work(graph::Phase phase) const override {
    const int groups = static_cast<int>(options.groups.size());
    return {.extra_elements = rows * normed(),
            .kernels = (phase == graph::Phase::backward ? 4 : 2) * groups + (rest() > 0)};
  }

  std::vector<comm::CollectiveCall> exchanges(graph::Phase) const override {
    if (options.shards == 1) return {};
    return {{comm::Collective::all_reduce_sum, options.axes, sums() * size_of(accum_type(dtype))}};
  }
  graph::Exchanged exchanged(graph::Phase phase, std::size_t, const graph::Exec& e) const override {
    const Tensor all = phase == graph::Phase::backward
                           ? Tensor{e.workspace(), accum_type(dtype), {sums()}}
                           : e.out(squares);
    return {all, all};
  }
  void stage(graph::Phase phase, std::size_t k, graph::Exec& e) const override {
    const bool backward = phase == graph::Phase::backward;
    with_float(dtype, [&]<class T>() {
      if (k == 0) add_up<T>(e, backward);
      if (k == 1 || options.shards == 1) backward ? backward_of<T>(e) : normalize<T>(e);
    });
  }

 private:
  std::int64_t sums() const { return rows * static_cast<std::int64_t>(options.groups.size()); }
  std::int64_t normed() const {
    return std::accumulate(options.groups.begin(), options.groups.end(), std::int64_t{0});
  }
  std::int64_t rest() const { return cols - normed(); }

  // f(stream, columns of the group, its first column, index of its first sum)
  template <class F>
  void each_group(graph::Exec& e, F&& f) const {
    device::on(e.stream(), [&](auto& s) {
      std::int64_t first = 0, sum = 0;
      for (const std::int64_t width : options.groups) {
        f(s, kernels::SharedRows{rows, width, cols}, first, sum);
        first += width, sum += rows;
      }
    });
  }
  template <class T>
  kernels::WidthNormArgs<T> args(const graph::Exec& e, const kernels::SharedRows& of,
                                 std::int64_t first, std::int64_t sum) const {
    return {of,
            of.cols * options.shards,
            options.eps,
            e.out(squares).template ptr<Accum<T>>() + sum,
            e.in(x).template ptr<T>() + first,
            e.in(gain).template ptr<T>() + first,
            nullptr};
  }
  template <class T>
  void copy_rest(graph::Exec& e, const T* source, T* target, bool accumulate) const {
    const std::int64_t at = cols - rest();
    if (rest() == 0) return;
    device::on(e.stream(), [&](auto& s) {
      kernels::copy_rows(s, kernels::CopyRowsArgs<T>{rows, rest(), source + at, cols, target + at,
                                                     cols, accumulate});
    });
  }

  template <class T>
  void add_up(graph::Exec& e, bool backward) const {
    auto* const sums = backward ? reinterpret_cast<Accum<T>*>(e.workspace())
                                : e.out(squares).template ptr<Accum<T>>();
    each_group(
        e, [&](auto& s, const kernels::SharedRows& of, std::int64_t first, std::int64_t sum) {
          kernels::row_sums(s, kernels::RowSumsArgs<T>{
                                   of, e.in(x).template ptr<T>() + first,
                                   backward ? e.grad_out(y).template ptr<T>() + first : nullptr,
                                   e.in(gain).template ptr<T>() + first, sums + sum});
        });
  }
  template <class T>
  void normalize(graph::Exec& e) const {
    T* const to = e.out(y).template ptr<T>();
    each_group(e,
               [&](auto& s, const kernels::SharedRows& of, std::int64_t first, std::int64_t sum) {
                 kernels::WidthNormArgs<T> a = args<T>(e, of, first, sum);
                 a.y = to + first;
                 kernels::width_norm(s, a);
               });
    copy_rest<T>(e, e.in(x).template ptr<T>(), to, false);
  }
  template <class T>
  void backward_of(graph::Exec& e) const {
    const graph::GradSlot dx = e.grad_in(x), dgain = e.grad_in(gain);
    const T* const dy = e.grad_out(y).template ptr<T>();
    T* const to = dx.tensor.template ptr<T>();
    auto* const to_gain = dgain.tensor.template ptr<Accum<T>>();
    each_group(
        e, [&](auto& s, const kernels::SharedRows& of, std::int64_t first, std::int64_t sum) {
          kernels::width_norm_backward(
              s, kernels::WidthNormBackwardArgs<T>{
                     args<T>(e, of, first, sum), reinterpret_cast<Accum<T>*>(e.workspace()) + sum,
                     dy + first, to ? to + first : nullptr, dx.accumulate,
                     to_gain ? to_gain + first : nullptr, dgain.accumulate});
        });
    if (to) copy_rest<T>(e, dy, to, dx.accumulate);
  }
};

}  // namespace

graph::Value width_norm(graph::Recorder& r, graph::Value x, WidthNormOptions options,
                        graph::Value gain) {
  auto op = std::make_unique<WidthNorm>();
  const Shape shape = r.info(x).shape;
  op->rows = shape[0];
  op->cols = shape[1];
  op->dtype = r.dtype();
  const std::int64_t groups = std::ssize(options.groups),
                     normed = std::accumulate(options.groups.begin(), options.groups.end(),
                                              std::int64_t{0});
  TFM_CHECK(normed <= shape[1] && r.info(gain).shape.elements() == normed,
            "columns that the row has not, or a gain of others");
  op->options = std::move(options);
  return r.apply(std::move(op), {x, gain},
                 {{shape, r.dtype()}, {{groups * shape[0]}, accum_type(r.dtype()), false}});
}

}  // namespace tfm::ops
