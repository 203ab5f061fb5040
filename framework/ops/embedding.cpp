#include "kernels/embedding.h"

#include "kernels/scratch.h"
#include "ops/ops.h"

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
               ? kernels::embedding_backward_scratch(rows, cols, size_of(accum_type(dtype)))
               : 0;
  }

  const std::int32_t* own_ids(const graph::Exec& e) const {
    return e.in(ids).ptr<std::int32_t>() + options.first_row;
  }
  void forward(graph::Exec& e) const override {
    with_float(e.out(y).dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) {
        kernels::embedding(s, kernels::EmbeddingArgs<T>{
                                  rows, cols, own_ids(e), e.in(table).ptr<T>(), options.vocab_begin,
                                  options.vocab_end, Accum<T>(options.scale), e.out(y).ptr<T>()});
      });
    });
  }
  void backward(graph::Exec& e) const override {
    const graph::GradSlot d = e.grad_in(table);
    if (!d) return;
    with_float(e.grad_out(y).dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) {
        kernels::embedding_backward(
            s, kernels::EmbeddingBackwardArgs<T>{rows, cols, own_ids(e), e.grad_out(y).ptr<T>(),
                                                 options.vocab_begin, options.vocab_end, table_rows,
                                                 Accum<T>(options.scale), options.padding_idx,
                                                 d.tensor.ptr<Accum<T>>(), d.accumulate});
      });
    });
  }
};

}  // namespace

graph::Value embedding(graph::Recorder& r, graph::Value ids, graph::Value table,
                       EmbeddingOptions options) {
  auto op = std::make_unique<Embedding>();
  op->rows = options.rows > 0 ? options.rows : r.info(ids).shape[0];
  op->table_rows = r.info(table).shape[0];
  op->cols = r.info(table).shape[1];
  op->options = options;
  const std::int64_t rows = op->rows, cols = op->cols;
  return r.apply(std::move(op), {ids, table}, {{{rows, cols}, r.dtype()}});
}

}  // namespace tfm::ops
