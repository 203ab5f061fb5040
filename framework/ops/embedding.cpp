#include "kernels/embedding.h"

#include "kernels/elementwise.h"
#include "kernels/scratch.h"
#include "ops/ops.h"
#include "ops/table.h"

namespace tfm::ops {
namespace {

struct Embedding final : graph::Op {
  enum In { ids, table };
  enum Out { y };

  std::int64_t rows, cols, table_rows;
  EmbeddingOptions options;

  std::string_view kind() const override { return "embedding"; }
  graph::Saved saved() const override { return {.inputs = {ids}}; }
  graph::Work work(graph::Phase) const override { return {.sparse_inputs = {table}}; }
  std::int64_t scratch_bytes(graph::Phase phase, DType dtype) const override {
    return phase == graph::Phase::backward
               ? kernels::embedding_backward_scratch(
                     rows, cols, static_cast<std::int64_t>(size_of(accum_type(dtype))))
               : 0;
  }

  void forward(graph::Exec& e) const override {
    with_float(e.out(y).dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) {
        kernels::embedding(s, kernels::EmbeddingArgs<T>{rows, cols, e.in(ids).ptr<std::int32_t>(),
                                                        e.in(table).ptr<T>(), options.vocab_begin,
                                                        options.vocab_end, Accum<T>(options.scale),
                                                        e.out(y).ptr<T>()});
      });
    });
  }
  void backward(graph::Exec& e) const override {
    with_float(e.grad_out(y).dtype, [&]<class T>() {
      const graph::GradSlot d = e.grad_in(table);
      device::on(e.stream(), [&](auto& s) {
        kernels::embedding_backward(
            s, kernels::EmbeddingBackwardArgs<T>{
                   rows, cols, e.in(ids).ptr<std::int32_t>(), e.grad_out(y).ptr<T>(),
                   options.vocab_begin, options.vocab_end, table_rows, Accum<T>(options.scale),
                   options.padding_idx, d.tensor.ptr<Accum<T>>(), d.accumulate});
      });
    });
  }
};

struct AddPosition final : graph::Op {
  enum In { x, table };
  enum Out { y };

  std::int64_t rows, cols, table_rows, first;
  DropoutOrigin place;

  std::string_view kind() const override { return "position"; }
  graph::Tensors passes_gradient() const override { return {x}; }
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

struct Rotary final : graph::Op {
  enum In { x, frequency };
  enum Out { y };

  std::int64_t rows, cols;
  RotaryOptions options;

  std::string_view kind() const override { return "rotary"; }
  graph::Saved saved() const override { return {.inputs = {frequency}}; }
  bool cheap() const override { return true; }
  std::int64_t scratch_bytes(graph::Phase, DType dtype) const override {
    return kernels::rotary_scratch(std::min(rows, options.rows.chunk_length()), options.head_size,
                                   static_cast<std::int64_t>(size_of(accum_type(dtype))));
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
                                      .length = options.rows.chunk_length(),
                                      .position_offset = e.state().first_position + c.start,
                                      .frequency = e.in(frequency).ptr<double>(),
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

graph::Value embedding(graph::Recorder& r, graph::Value ids, graph::Value table,
                       EmbeddingOptions options) {
  auto op = std::make_unique<Embedding>();
  op->rows = r.info(ids).shape[0];
  op->table_rows = r.info(table).shape[0];
  op->cols = r.info(table).shape[1];
  op->options = options;
  return r.apply(std::move(op), {ids, table},
                 {{{r.info(ids).shape[0], r.info(table).shape[1]}, r.dtype()}});
}

graph::Value add_position(graph::Recorder& r, graph::Value x, graph::Value table,
                          const DropoutOrigin& place, std::int64_t first) {
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

graph::Value rotary(graph::Recorder& r, graph::Value x, RotaryOptions options) {
  auto op = std::make_unique<Rotary>();
  const Shape shape = r.info(x).shape;
  op->rows = shape[0];
  op->cols = shape[1];
  const graph::Value frequency = table(r, "rotary", options.frequency);
  op->options = std::move(options);
  return r.apply(std::move(op), {x, frequency}, {{shape, r.dtype()}});
}

}  // namespace tfm::ops
