#include "kernels/cross_entropy.h"

#include <algorithm>

#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "ops/ops.h"

namespace tfm::ops {
namespace {

// Workspace of a chunk: logits (R, Vr), max (R), sums (3, R), loss (R) f64; Vr = this rank's rows of the output embedding. Rows of
// logits start at multiples of 16 bytes: without, matrix products on GPUs take slower kernels.
struct LinearCrossEntropy final : Op {
  std::int64_t rows, cols, vocab_rows;
  CrossEntropyOptions options;
  bool bias;
  DType real;

  std::string_view kind() const override { return "cross_entropy"; }
  Saved saved() const override { return {.inputs = bias ? 0b1111u : 0b0111u}; }
  bool fused() const override { return true; }
  // Kernels read the logits for their maximum and their sums; in training they become gradients in place.
  Work work(Phase phase) const override {
    const bool gradients = phase == Phase::backward;
    Work w{.again = rows * vocab_rows * (gradients ? 4 + bias : 2), .kernels = static_cast<int>(chunks()) * (gradients ? 8 + bias : 5)};
    const std::int64_t whole = rows / chunk(), rest = rows % chunk();
    for (const auto& [n, count] : {std::pair{chunk(), whole}, {rest, std::int64_t{1}}}) {
      if (n * count == 0) continue;
      w.products.push_back({n, vocab_rows, cols, count});
      if (!gradients) continue;
      w.products.push_back({n, cols, vocab_rows, count});
      w.products.push_back({.m = vocab_rows, .n = cols, .k = n, .count = count, .sum = true});
    }
    return w;
  }
  std::int64_t chunk() const { return options.chunk_rows; }
  std::int64_t chunks() const { return ceil_div(rows, chunk()); }
  std::int64_t real_bytes() const { return static_cast<std::int64_t>(size_of(real)); }
  std::int64_t wide_bytes() const { return static_cast<std::int64_t>(size_of(wide(real))); }
  std::int64_t pitch() const { return round_up(vocab_rows, 8); }
  std::int64_t logits_bytes() const { return round_up(chunk() * pitch() * real_bytes(), 64); }
  std::int64_t workspace_bytes(Phase) const override {
    return logits_bytes() + round_up(4 * chunk() * wide_bytes(), 64) + chunk() * 8;
  }
  std::vector<CollectiveUse> collectives(Phase) const override {
    if (options.vocab_begin == 0 && options.vocab_end == options.vocab_size) return {};
    std::vector<CollectiveUse> all;
    for (std::int64_t c = 0; c < rows; c += chunk()) {
      const std::int64_t n = std::min(chunk(), rows - c);
      all.push_back({Collective::all_reduce_max, Axis::tensor, n * wide_bytes()});
      all.push_back({Collective::all_reduce_sum, Axis::tensor, 3 * n * wide_bytes()});
    }
    return all;
  }

  template <class T> void run(Exec& e, bool gradients) const {
    using W = Wide<T>;
    std::byte* ws = e.workspace();
    const T* x = e.in(0).ptr<T>();
    const T* w = e.in(1).ptr<T>();
    const std::int32_t* labels = e.in(2).ptr<std::int32_t>();
    T* logits = reinterpret_cast<T*>(ws);
    W* max = reinterpret_cast<W*>(ws + logits_bytes());
    auto* loss = reinterpret_cast<double*>(ws + logits_bytes() + round_up(4 * chunk() * wide_bytes(), 64));
    const GradSlot dx = gradients ? e.grad_in(0) : GradSlot{}, dw = gradients ? e.grad_in(1) : GradSlot{},
                   db = gradients ? e.grad_in(3) : GradSlot{};
    const bool split = !collectives(Phase::forward).empty();
    const W scale = static_cast<W>(options.scale);
    const double* factor = e.numbers() ? &e.numbers()->gradient_scale[static_cast<std::size_t>(options.objective)] : nullptr;
    double *total = e.out(0).ptr<double>(), *correct = options.accuracy ? e.out(1).ptr<double>() : nullptr;
    on(e.stream(), [&](auto& s) {
      for (double* sum : {total, correct})
        if (sum) kernels::fill(s, kernels::FillArgs<double>{1, 0, sum});
      for (std::int64_t c = 0; c < rows; c += chunk()) {
        const std::int64_t n = std::min(chunk(), rows - c);
        kernels::gemm(s, kernels::GemmArgs<T>{.transpose_b = true, .m = n, .n = vocab_rows, .k = cols, .alpha = scale, .a = x + c * cols, .lda = cols,
                                              .b = w, .ldb = cols, .c = logits, .ldc = pitch(),
                                              .bias = bias ? e.in(3).ptr<T>() : nullptr});
        kernels::CrossEntropyArgs<T> ce{n, options.vocab_end - options.vocab_begin, pitch(), vocab_rows, options.vocab_begin,
                                        options.vocab_size, logits, labels + c, max, max + n, W(options.smoothing),
                                        factor, loss, total, correct};
        kernels::cross_entropy_max(s, ce);
        if (split) e.context.mesh->tensor->all_reduce({max, dtype_of<W>, {n}}, Collective::all_reduce_max);
        kernels::cross_entropy_sums(s, ce);
        if (options.accuracy) kernels::cross_entropy_ties(s, ce);
        if (split) e.context.mesh->tensor->all_reduce({max + n, dtype_of<W>, {3, n}});
        kernels::cross_entropy_loss(s, ce);
        kernels::cross_entropy_total(s, ce);
        if (!gradients) continue;
        kernels::cross_entropy_gradient(s, ce);
        if (dx)
          kernels::gemm(s, kernels::GemmArgs<T>{.m = n, .n = cols, .k = vocab_rows, .alpha = scale, .a = logits, .lda = pitch(), .b = w, .ldb = cols,
                                                .beta = W(dx.accumulate), .c = dx.tensor.ptr<T>() + c * cols, .ldc = cols});
        if (dw)
          kernels::gemm(s, kernels::GemmArgs<T, W>{.transpose_a = true, .m = vocab_rows, .n = cols, .k = n, .alpha = scale, .a = logits, .lda = pitch(),
                                                .b = x + c * cols, .ldb = cols, .beta = W(dw.accumulate || c > 0),
                                                .c = dw.tensor.ptr<W>(), .ldc = cols});
        if (db)
          kernels::column_sum(s, kernels::ColumnSumArgs<T>{n, vocab_rows, pitch(), logits, db.tensor.ptr<W>(), db.accumulate || c > 0});
      }
    });
  }
  void forward(Exec& e) const override { with_float(real, [&]<class T>() { run<T>(e, false); }); }
  void backward(Exec& e) const override { with_float(real, [&]<class T>() { run<T>(e, true); }); }
};

}  // namespace

Value linear_cross_entropy(Recorder& r, Value x, Value weight, Value bias, Value labels, CrossEntropyOptions options) {
  auto op = std::make_unique<LinearCrossEntropy>();
  op->rows = r.info(x).shape[0];
  op->cols = r.info(x).shape[1];
  op->vocab_rows = r.info(weight).shape[0];
  op->bias = static_cast<bool>(bias);
  op->real = r.real();
  if (options.chunk_rows == 0) {  // about 26 Mi logits, or an eighth of the rows: each chunk reads and writes the weight's gradient
    const std::int64_t most = std::max({std::int64_t{256}, (26 << 20) / options.vocab_size, ceil_div(op->rows, 8)});
    options.chunk_rows = round_up(ceil_div(op->rows, ceil_div(op->rows, most)), 16);
  }
  options.chunk_rows = std::min(options.chunk_rows, op->rows);
  op->options = options;
  const OutputSpec one{{1}, DType::f64};
  if (options.accuracy) return r.apply(std::move(op), {x, weight, labels, bias}, {one, one});
  return r.apply(std::move(op), {x, weight, labels, bias}, {one});
}

}  // namespace tfm::ops
