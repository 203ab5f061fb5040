#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "ops/ops.h"

namespace tfm::ops {
namespace {

struct AddPosition final : graph::Op {
  enum In { x, table };
  enum Out { y };

  std::int64_t rows, cols, table_rows, first;
  ActivationRegion place;

  std::string_view kind() const override { return "position"; }
  graph::OperandSet passes_gradient() const override { return {x}; }
  graph::Saved saved() const override { return {}; }
  graph::Work work(graph::Phase) const override { return {.kernel_per_gradient = true}; }

  void forward(graph::Exec& e) const override {
    const std::int64_t row = first + e.state().first_position;
    TFM_CHECK(row + place.rows.sequence_length <= table_rows,
              "no position " + std::to_string(row + place.rows.sequence_length - 1));
    with_float(e.out(y).dtype, [&]<class T>() {
      each_chunk(place.rows, place.row_offset, rows, [&](const ChunkRows& c) {
        device::on(e.stream(), [&](auto& s) {
          kernels::add_position(s, kernels::PositionArgs<T>{
                                       c.count, cols, c.offset, place.rows.chunk_length(),
                                       row + c.start, e.in(x).ptr<T>() + c.first * cols,
                                       e.in(table).ptr<T>(), e.out(y).ptr<T>() + c.first * cols});
        });
      });
    });
  }
  void backward(graph::Exec& e) const override {
    with_float(e.grad_out(y).dtype, [&]<class T>() {
      const T* dy = e.grad_out(y).ptr<T>();
      device::on(e.stream(), [&](auto& s) {
        if (graph::GradSlot dx = e.grad_in(x))
          kernels::copy(s,
                        kernels::CopyArgs<T>{rows * cols, dy, dx.tensor.ptr<T>(), dx.accumulate});
        if (graph::GradSlot d = e.grad_in(table))
          each_chunk(place.rows, place.row_offset, rows, [&](const ChunkRows& c) {
            kernels::add_position_backward(
                s,
                kernels::PositionBackwardArgs<T>{
                    c.count, cols, c.offset, place.rows.chunk_length(), first + c.start, table_rows,
                    dy + c.first * cols, d.tensor.ptr<Accum<T>>(), d.accumulate || c.first > 0});
          });
      });
    });
  }
};

}  // namespace

graph::Value add_position(graph::Recorder& r, graph::Value x, graph::Value table,
                          const ActivationRegion& place, std::int64_t first) {
  auto op = std::make_unique<AddPosition>();
  const Shape shape = r.info(x).shape;
  op->rows = shape[0];
  op->cols = shape[1];
  op->table_rows = r.info(table).shape[0];
  op->place = place;
  op->first = first;
  TFM_CHECK(op->table_rows >= first + place.rows.sequence_length,
            "the position table is shorter than a sequence");
  return r.apply(std::move(op), {x, table}, {{shape, r.dtype()}});
}

}  // namespace tfm::ops
