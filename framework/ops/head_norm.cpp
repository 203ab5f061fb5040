#include <algorithm>
#include <numeric>

#include "kernels/elementwise.h"
#include "kernels/norm.h"
#include "kernels/scratch.h"
#include "ops/ops.h"

namespace tfm::ops {
namespace {

template <class T>
T* from(T* p, std::int64_t offset) {
  return p ? p + offset : nullptr;
}

struct HeadNorm final : graph::Op {
  enum In { x, gain, shift };
  enum Out { y, mean, rstd };

  std::int64_t rows, cols;
  HeadNormOptions options;

  std::string_view kind() const override { return "head_norm"; }
  graph::Saved saved() const override { return {.inputs = {x, gain}, .outputs = {mean, rstd}}; }
  bool cheap() const override { return true; }
  std::int64_t scratch_bytes(graph::Phase phase, DType dtype) const override {
    std::int64_t most = 0;
    for (std::int64_t heads : options.groups)
      most = std::max(
          most, kernels::norm_backward_scratch(rows * heads, options.head_size, size_of(dtype)));
    return phase == graph::Phase::backward ? most : 0;
  }
  graph::Work work(graph::Phase phase) const override {
    const int groups = static_cast<int>(options.groups.size());
    return {.kernels = (phase == graph::Phase::backward ? 2 * groups : groups) + (rest() > 0)};
  }

  std::int64_t heads() const {
    return std::accumulate(options.groups.begin(), options.groups.end(), std::int64_t{0});
  }
  std::int64_t rest() const { return cols - heads() * options.head_size; }
  // f(group, its heads, the heads before it)
  template <class F>
  void each_group(F&& f) const {
    std::int64_t before = 0;
    for (std::size_t g = 0; g < options.groups.size(); before += options.groups[g++])
      f(static_cast<std::int64_t>(g), options.groups[g], before);
  }
  template <class T, class Stream>
  void copy_rest(Stream& s, const T* source, T* target, bool accumulate) const {
    const std::int64_t at = cols - rest();
    if (rest() > 0)
      kernels::copy_rows(s, kernels::CopyRowsArgs<T>{rows, rest(), source + at, cols, target + at,
                                                     cols, accumulate});
  }

  void forward(graph::Exec& e) const override {
    with_float(e.out(y).dtype, [&]<class T>() {
      const std::int64_t D = options.head_size;
      device::on(e.stream(), [&](auto& s) {
        each_group([&](std::int64_t g, std::int64_t heads, std::int64_t before) {
          kernels::norm(s, kernels::NormArgs<T>{rows * heads,
                                                D,
                                                e.in(x).ptr<T>() + before * D,
                                                e.in(gain).ptr<T>() + g * D,
                                                from(e.in(shift).ptr<T>(), g * D),
                                                e.out(y).ptr<T>() + before * D,
                                                e.out(mean).ptr<Accum<T>>() + rows * before,
                                                e.out(rstd).ptr<Accum<T>>() + rows * before,
                                                options.norm.eps,
                                                options.norm.rms,
                                                {heads, cols},
                                                Accum<T>(options.norm.plus_one),
                                                options.norm.eps_outside});
        });
        copy_rest(s, e.in(x).ptr<T>(), e.out(y).ptr<T>(), false);
      });
    });
  }
  void backward(graph::Exec& e) const override {
    with_float(e.grad_out(y).dtype, [&]<class T>() {
      using W = Accum<T>;
      const graph::GradSlot dx = e.grad_in(x), dgain = e.grad_in(gain), dshift = e.grad_in(shift);
      const std::int64_t D = options.head_size;
      const T* const dy = e.grad_out(y).ptr<T>();
      T* const to = dx.tensor.ptr<T>();
      device::on(e.stream(), [&](auto& s) {
        each_group([&](std::int64_t g, std::int64_t heads, std::int64_t before) {
          kernels::norm_backward(s,
                                 kernels::NormBackwardArgs<T>{rows * heads,
                                                              D,
                                                              dy + before * D,
                                                              e.in(x).ptr<T>() + before * D,
                                                              e.in(gain).ptr<T>() + g * D,
                                                              e.out(mean).ptr<W>() + rows * before,
                                                              e.out(rstd).ptr<W>() + rows * before,
                                                              from(to, before * D),
                                                              dx.accumulate,
                                                              from(dgain.tensor.ptr<W>(), g * D),
                                                              dgain.accumulate,
                                                              from(dshift.tensor.ptr<W>(), g * D),
                                                              dshift.accumulate,
                                                              options.norm.rms,
                                                              {heads, cols},
                                                              W(options.norm.plus_one),
                                                              options.norm.eps,
                                                              options.norm.eps_outside});
        });
        if (to) copy_rest(s, dy, to, dx.accumulate);
      });
    });
  }
};

}  // namespace

graph::Value head_norm(graph::Recorder& r, graph::Value x, HeadNormOptions options,
                       graph::Value gain, graph::Value shift) {
  auto op = std::make_unique<HeadNorm>();
  const Shape shape = r.info(x).shape;
  op->rows = shape[0];
  op->cols = shape[1];
  op->options = std::move(options);
  TFM_CHECK(op->rest() >= 0 &&
                r.info(gain).shape.elements() ==
                    op->options.head_size * static_cast<std::int64_t>(op->options.groups.size()),
            "heads that the row has not, or a gain of other groups");
  const std::int64_t statistics = op->rows * op->heads();
  return r.apply(std::move(op), {x, gain, shift},
                 {{shape, r.dtype()},
                  {{statistics}, accum_type(r.dtype()), false},
                  {{statistics}, accum_type(r.dtype()), false}});
}

}  // namespace tfm::ops
