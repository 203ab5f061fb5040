#include "kernels/embedding.h"
#include "kernels/scratch.h"
#include "ops/ops.h"
#include "ops/table.h"

namespace tfm::ops {
namespace {

struct Rotary final : graph::Op {
  enum In { x, frequency };
  enum Out { y };

  std::int64_t rows, cols;
  RotaryOptions options;

  std::int64_t turning() const { return 2 * std::ssize(options.frequency); }
  std::string_view kind() const override { return "rotary"; }
  graph::Saved saved() const override { return {.inputs = {frequency}}; }
  bool cheap() const override { return true; }
  std::int64_t scratch_bytes(graph::Phase, DType dtype) const override {
    return kernels::rotary_scratch(std::min(rows, options.rows.chunk_length()), turning(),
                                   size_of(accum_type(dtype)));
  }

  template <class T>
  void run(graph::Exec& e, const T* from, T* to, bool inverse, bool accumulate) const {
    each_chunk(options.rows, 0, rows, [&](const ChunkRows& c) {
      device::on(e.stream(), [&](auto& s) {
        kernels::rotary(
            s, kernels::RotaryArgs<T>{.rows = c.count,
                                      .cols = cols,
                                      .rotated_heads = options.heads,
                                      .head_size = options.head_size,
                                      .turning = turning(),
                                      .length = options.rows.chunk_length(),
                                      .position_offset = e.state().first_position + c.start,
                                      .frequency = e.in(frequency).ptr<double>(),
                                      .factor = options.factor,
                                      .x = from + c.first * cols,
                                      .y = to + c.first * cols,
                                      .inverse = inverse,
                                      .accumulate = accumulate});
      });
    });
  }
  void forward(graph::Exec& e) const override {
    with_float(e.out(y).dtype,
               [&]<class T>() { run<T>(e, e.in(x).ptr<T>(), e.out(y).ptr<T>(), false, false); });
  }
  void backward(graph::Exec& e) const override {
    with_float(e.grad_out(y).dtype, [&]<class T>() {
      const graph::GradSlot dx = e.grad_in(x);
      run<T>(e, e.grad_out(y).ptr<T>(), dx.tensor.ptr<T>(), true, dx.accumulate);
    });
  }
};

}  // namespace

graph::Value rotary(graph::Recorder& r, graph::Value x, const RotaryOptions& options) {
  auto op = std::make_unique<Rotary>();
  const Shape shape = r.info(x).shape;
  op->rows = shape[0];
  op->cols = shape[1];
  const graph::Value frequency = table(r, "rotary", options.frequency);
  op->options = options;
  return r.apply(std::move(op), {x, frequency}, {{shape, r.dtype()}});
}

}  // namespace tfm::ops
