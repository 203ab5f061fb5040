#include "ops/latent.h"

#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/scratch.h"
#include "ops/table.h"

namespace tfm::ops {
namespace {

struct LatentHeads final : graph::Op {
  enum In { q, kv, shared, frequency };
  enum Out { qkv };

  LatentOptions options;

  std::string_view kind() const override { return "latent_heads"; }
  graph::Saved saved() const override { return {.inputs = {frequency}}; }
  bool cheap() const override { return true; }
  std::int64_t scratch_bytes(graph::Phase, DType dtype) const override {
    return kernels::rotary_scratch(std::min(options.rows.tokens(), options.rows.chunk_length()),
                                   options.sizes.turning, size_of(accum_type(dtype)));
  }
  std::int64_t q_width() const { return options.sizes.heads * options.sizes.head(); }
  std::int64_t kv_width() const {
    return options.sizes.heads * (options.sizes.plain + options.sizes.values);
  }

  // Calls f(stream, chunk, its positions).
  template <class F>
  void each(graph::Exec& e, F&& f) const {
    each_chunk(options.rows, 0, options.rows.tokens(), [&](const ChunkRows& c) {
      const kernels::Positions p{options.rows.chunk_length(), e.state().first_position + c.start,
                                 e.in(frequency).ptr<double>(), options.factor};
      device::on(e.stream(), [&](auto& s) { f(s, c, p); });
    });
  }
  void forward(graph::Exec& e) const override {
    with_float(e.out(qkv).dtype, [&]<class T>() {
      each(e, [&](auto& s, const ChunkRows& c, const kernels::Positions& p) {
        kernels::latent_heads(
            s, kernels::LatentHeadsArgs<T>{c.count, options.sizes, p,
                                           e.in(q).ptr<T>() + c.first * q_width(),
                                           e.in(kv).ptr<T>() + c.first * kv_width(),
                                           e.in(shared).ptr<T>() + c.first * options.sizes.turning,
                                           e.out(qkv).ptr<T>() + c.first * 3 * q_width()});
      });
    });
  }
  void backward(graph::Exec& e) const override {
    with_float(e.grad_out(qkv).dtype, [&]<class T>() {
      const graph::GradSlot dq = e.grad_in(q), dkv = e.grad_in(kv), dshared = e.grad_in(shared);
      each(e, [&](auto& s, const ChunkRows& c, const kernels::Positions& p) {
        const auto rows_of = [&](const graph::GradSlot& d, std::int64_t width) {
          return d ? d.tensor.ptr<T>() + c.first * width : nullptr;
        };
        kernels::latent_heads_backward(
            s, kernels::LatentHeadsBackwardArgs<T>{
                   c.count, options.sizes, p, e.grad_out(qkv).ptr<T>() + c.first * 3 * q_width(),
                   rows_of(dq, q_width()), rows_of(dkv, kv_width()),
                   rows_of(dshared, options.sizes.turning), dq.accumulate, dkv.accumulate,
                   dshared.accumulate});
      });
    });
  }
};

struct LatentValues final : graph::Op {
  enum In { x };
  enum Out { y };

  std::int64_t heads, size, values;  // heads of all rows

  std::string_view kind() const override { return "latent_values"; }
  graph::Saved saved() const override { return {}; }
  bool cheap() const override { return true; }
  void forward(graph::Exec& e) const override {
    with_float(e.out(y).dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) {
        kernels::copy_rows(s, kernels::CopyRowsArgs<T>{heads, values, e.in(x).ptr<T>(), size,
                                                       e.out(y).ptr<T>(), values});
      });
    });
  }
  void backward(graph::Exec& e) const override {
    const graph::GradSlot dx = e.grad_in(x);
    if (!dx) return;
    TFM_CHECK(!dx.accumulate, "another op reads the result of latent attention");
    with_float(e.grad_out(y).dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) {
        kernels::fill(s, kernels::FillArgs<T>{heads * size, T(0.0F), dx.tensor.ptr<T>()});
        kernels::copy_rows(s, kernels::CopyRowsArgs<T>{heads, values, e.grad_out(y).ptr<T>(),
                                                       values, dx.tensor.ptr<T>(), size});
      });
    });
  }
};

struct AbsorbedHeads final : graph::Op {
  enum In { q, latent, shared, weight, frequency };
  enum Out { y };

  LatentOptions options;
  std::int64_t width;  // L

  std::string_view kind() const override { return "absorbed_heads"; }
  graph::Saved saved() const override { return {}; }
  graph::Work work(graph::Phase) const override {
    return {
        .products = {{options.rows.tokens() * options.sizes.heads, width, options.sizes.plain}}};
  }
  std::int64_t scratch_bytes(graph::Phase, DType dtype) const override {
    return kernels::rotary_scratch(options.rows.tokens(), options.sizes.turning,
                                   size_of(accum_type(dtype)));
  }
  void forward(graph::Exec& e) const override {
    with_float(e.out(y).dtype, [&]<class T>() {
      const auto& [heads, plain, turning, values] = options.sizes;
      const std::int64_t rows = options.rows.tokens(), size = plain + turning,
                         key = width + turning, row = (heads + 1) * key;
      const kernels::Positions p{options.rows.sequence_length, e.state().first_position,
                                 e.in(frequency).ptr<double>(), options.factor};
      const T *const from = e.in(q).ptr<T>(), *const w = e.in(weight).ptr<T>();
      T* const to = e.out(y).ptr<T>();
      device::on(e.stream(), [&](auto& s) {
        for (std::int64_t h = 0; h < heads; ++h)
          kernels::gemm(s, kernels::GemmArgs<T>{.m = rows,
                                                .n = width,
                                                .k = plain,
                                                .a = from + h * size,
                                                .lda = heads * size,
                                                .b = w + h * (plain + values) * width,
                                                .ldb = width,
                                                .c = to + h * key,
                                                .ldc = row});
        kernels::turn(s, kernels::TurnArgs<T>{rows, heads, turning, p, from + plain, heads * size,
                                              size, to + width, row, key});
        kernels::copy_rows(s, kernels::CopyRowsArgs<T>{rows, width, e.in(latent).ptr<T>(), width,
                                                       to + heads * key, row});
        kernels::turn(s, kernels::TurnArgs<T>{rows, 1, turning, p, e.in(shared).ptr<T>(), turning,
                                              0, to + heads * key + width, row, 0});
      });
    });
  }
  void backward(graph::Exec&) const override { internal_error("forward only"); }
};

struct AbsorbedValues final : graph::Op {
  enum In { x, weight };
  enum Out { y };

  std::int64_t rows, width, key;  // L, L + R
  kernels::LatentSizes sizes;

  std::string_view kind() const override { return "absorbed_values"; }
  graph::Saved saved() const override { return {}; }
  graph::Work work(graph::Phase) const override {
    return {.products = {{rows * sizes.heads, sizes.values, width}}};
  }
  void forward(graph::Exec& e) const override {
    with_float(e.out(y).dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) {
        for (std::int64_t h = 0; h < sizes.heads; ++h)
          kernels::gemm(
              s, kernels::GemmArgs<T>{.transpose_b = true,
                                      .m = rows,
                                      .n = sizes.values,
                                      .k = width,
                                      .a = e.in(x).ptr<T>() + h * key,
                                      .lda = sizes.heads * key,
                                      .b = e.in(weight).ptr<T>() +
                                           (h * (sizes.plain + sizes.values) + sizes.plain) * width,
                                      .ldb = width,
                                      .c = e.out(y).ptr<T>() + h * sizes.values,
                                      .ldc = sizes.heads * sizes.values});
      });
    });
  }
  void backward(graph::Exec&) const override { internal_error("forward only"); }
};

}  // namespace

graph::Value latent_heads(graph::Recorder& r, graph::Value q, graph::Value kv, graph::Value shared,
                          const LatentOptions& options) {
  const auto& [heads, plain, turning, values] = options.sizes;
  const std::int64_t rows = options.rows.tokens(), size = options.sizes.head();
  TFM_CHECK(r.info(q).shape == (Shape{rows, heads * size}) &&
                r.info(kv).shape == (Shape{rows, heads * (plain + values)}) &&
                r.info(shared).shape == (Shape{rows, turning}) && values <= size &&
                turning % 2 == 0,
            "heads of latent attention are " + r.info(q).shape.str());
  auto op = std::make_unique<LatentHeads>();
  op->options = options;
  const graph::Value frequency = table(r, "rotary", options.frequency);
  return r.apply(std::move(op), {q, kv, shared, frequency},
                 {{{rows, 3 * heads * size}, r.dtype()}});
}

graph::Value latent_values(graph::Recorder& r, graph::Value y, const kernels::LatentSizes& sizes) {
  if (sizes.values == sizes.head()) return y;
  auto op = std::make_unique<LatentValues>();
  const std::int64_t rows = r.info(y).shape[0];
  op->heads = rows * sizes.heads;
  op->size = sizes.head();
  op->values = sizes.values;
  return r.apply(std::move(op), {y}, {{{rows, sizes.heads * sizes.values}, r.dtype()}});
}

graph::Value absorbed_heads(graph::Recorder& r, graph::Value q, graph::Value latent,
                            graph::Value shared, graph::Value weight,
                            const LatentOptions& options) {
  auto op = std::make_unique<AbsorbedHeads>();
  op->options = options;
  op->width = r.info(latent).shape[1];
  const Shape shape{options.rows.tokens(),
                    (options.sizes.heads + 1) * (op->width + options.sizes.turning)};
  const graph::Value frequency = table(r, "rotary", options.frequency);
  return r.apply(std::move(op), {q, latent, shared, weight, frequency}, {{shape, r.dtype()}});
}

graph::Value absorbed_values(graph::Recorder& r, graph::Value y, graph::Value weight,
                             const kernels::LatentSizes& sizes) {
  auto op = std::make_unique<AbsorbedValues>();
  op->rows = r.info(y).shape[0];
  op->width = r.info(weight).shape[1];
  op->key = div_exact(r.info(y).shape[1], sizes.heads);
  op->sizes = sizes;
  const Shape shape{op->rows, sizes.heads * sizes.values};
  return r.apply(std::move(op), {y, weight}, {{shape, r.dtype()}});
}

}  // namespace tfm::ops
