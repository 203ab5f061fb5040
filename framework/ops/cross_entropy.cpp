#include "kernels/cross_entropy.h"

#include <algorithm>

#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/scratch.h"
#include "ops/ops.h"

namespace tfm::ops {
namespace {

// Rows of a chunk that are worked on: all, or those with a label.
template <class T>
struct Rows {
  std::int64_t n, cols;
  const T* x;
  const std::int32_t* labels;
  const std::int32_t* places = nullptr;  // in the chunk, where x is a copy; null: all
};

// Copies to `x` (n, cols) and `labels` (2 n: labels, places).
template <class T>
Rows<T> labelled(cpu::Stream& s, const Rows<T>& all, T* x, std::int32_t* labels) {
  const std::int64_t n =
      std::count_if(all.labels, all.labels + all.n, [](std::int32_t label) { return label >= 0; });
  if (n == 0 || n * 8 > all.n * 7) return all;
  std::int32_t *places = labels + all.n, *place = places;
  for (std::int64_t r = 0; r < all.n; ++r)
    if (all.labels[r] >= 0) *place++ = static_cast<std::int32_t>(r);
  for (std::int64_t i = 0; i < n; ++i) labels[i] = all.labels[places[i]];
  kernels::embedding(s, kernels::EmbeddingArgs<T>{n, all.cols, places, all.x, 0, all.n, 1, x});
  return {n, all.cols, x, labels, places};
}
template <class T>
Rows<T> labelled(cuda::Stream&, const Rows<T>& all, T*, std::int32_t*) {
  return all;
}  // the host does not know them

// Workspace of a chunk: logits (R, Vr), max (R), sums (3, R), loss (R) f64; Vr = this rank's rows
// of the output embedding. Rows of logits start at multiples of 16 bytes: without, matrix products
// on GPUs take slower kernels. Behind them x (R, C), labels (R) and places (R) of the rows that
// have a label, where the host knows them and they are few: the others have no loss and pass no
// gradient.
struct LinearCrossEntropy final : graph::Op {
  enum In { x, weight, labels, bias };
  enum Out { total, correct };

  std::int64_t rows, cols, vocab_rows;
  CrossEntropyOptions options;
  bool has_bias;
  DType dtype;

  std::string_view kind() const override { return "cross_entropy"; }
  graph::Saved saved() const override { return {.inputs = {x, weight, labels, bias}}; }
  bool forward_with_backward() const override { return true; }
  // Kernels read the logits for their maximum and their sums; in training they become gradients in
  // place.
  graph::Work work(graph::Phase phase) const override {
    const bool gradients = phase == graph::Phase::backward;
    graph::Work w{.extra_elements = rows * vocab_rows * (gradients ? 4 + has_bias : 2),
                  .kernels = static_cast<int>(chunks()) * (gradients ? 8 + has_bias : 5)};
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
  std::int64_t element_bytes() const { return static_cast<std::int64_t>(size_of(dtype)); }
  std::int64_t accum_bytes() const { return static_cast<std::int64_t>(size_of(accum_type(dtype))); }
  std::int64_t pitch() const { return round_up(vocab_rows, 8); }
  std::int64_t logits_bytes() const { return round_up(chunk() * pitch() * element_bytes(), 64); }
  std::int64_t sums_bytes() const {
    return round_up(4 * chunk() * accum_bytes(), 64) + round_up(chunk() * 8, 64);
  }
  std::int64_t own_bytes() const { return round_up(chunk() * cols * element_bytes(), 64); }
  std::int64_t workspace_bytes(graph::Phase) const override {
    return logits_bytes() + sums_bytes() + own_bytes() +
           2 * chunk() * static_cast<std::int64_t>(sizeof(std::int32_t));
  }
  std::int64_t scratch_bytes(graph::Phase, DType) const override {
    return has_bias ? kernels::column_sum_scratch(chunk(), vocab_rows, accum_bytes()) : 0;
  }
  std::vector<graph::CollectiveUse> collectives(graph::Phase) const override {
    if (options.vocab_begin == 0 && options.vocab_end == options.vocab_size) return {};
    std::vector<graph::CollectiveUse> all;
    for (std::int64_t c = 0; c < rows; c += chunk()) {
      const std::int64_t n = std::min(chunk(), rows - c);
      all.push_back({comm::Collective::all_reduce_max, comm::Axis::tensor, n * accum_bytes()});
      all.push_back({comm::Collective::all_reduce_sum, comm::Axis::tensor, 3 * n * accum_bytes()});
    }
    return all;
  }

  template <class T>
  void run(graph::Exec& e, bool gradients) const {
    using W = Accum<T>;
    std::byte* ws = e.workspace();
    const T* w = e.in(weight).ptr<T>();
    T* logits = reinterpret_cast<T*>(ws);
    W* max = reinterpret_cast<W*>(ws + logits_bytes());
    auto* loss =
        reinterpret_cast<double*>(ws + logits_bytes() + round_up(4 * chunk() * accum_bytes(), 64));
    T* own_x = reinterpret_cast<T*>(ws + logits_bytes() + sums_bytes());
    auto* own_labels =
        reinterpret_cast<std::int32_t*>(ws + logits_bytes() + sums_bytes() + own_bytes());
    const graph::GradSlot dx = gradients ? e.grad_in(x) : graph::GradSlot{},
                          dw = gradients ? e.grad_in(weight) : graph::GradSlot{},
                          db = gradients ? e.grad_in(bias) : graph::GradSlot{};
    const bool split = !collectives(graph::Phase::forward).empty();
    comm::Communicator* ranks = split ? &e.context.mesh->group(comm::Axis::tensor) : nullptr;
    const W scale = static_cast<W>(options.scale);
    const double* factor =
        e.numbers() ? &e.numbers()->gradient_scale[static_cast<std::size_t>(options.objective)]
                    : nullptr;
    double* const loss_sum = e.out(total).ptr<double>();
    double* const hits = options.accuracy ? e.out(correct).ptr<double>() : nullptr;
    device::on(e.stream(), [&](auto& s) {
      for (double* sum : {loss_sum, hits})
        if (sum) kernels::fill(s, kernels::FillArgs<double>{1, 0, sum});
      for (std::int64_t c = 0; c < rows; c += chunk()) {
        const std::int64_t all = std::min(chunk(), rows - c);
        const Rows<T> some = labelled(
            s,
            Rows<T>{all, cols, e.in(x).ptr<T>() + c * cols, e.in(labels).ptr<std::int32_t>() + c},
            own_x, own_labels);
        const std::int64_t n = some.n;
        if (split && n < all)
          kernels::fill(
              s, kernels::FillArgs<W>{4 * all, 0, max});  // ranks exchange what the plan says
        kernels::gemm(s, kernels::GemmArgs<T>{.transpose_b = true,
                                              .m = n,
                                              .n = vocab_rows,
                                              .k = cols,
                                              .alpha = scale,
                                              .a = some.x,
                                              .lda = cols,
                                              .b = w,
                                              .ldb = cols,
                                              .c = logits,
                                              .ldc = pitch(),
                                              .bias = e.in(bias).ptr<T>()});
        kernels::CrossEntropyArgs<T> ce{n,
                                        options.vocab_end - options.vocab_begin,
                                        pitch(),
                                        vocab_rows,
                                        options.vocab_begin,
                                        options.vocab_size,
                                        logits,
                                        some.labels,
                                        max,
                                        max + all,
                                        W(options.smoothing),
                                        factor,
                                        loss,
                                        loss_sum,
                                        hits};
        kernels::cross_entropy_max(s, ce);
        if (split) ranks->all_reduce({max, dtype_of<W>, {all}}, comm::Collective::all_reduce_max);
        kernels::cross_entropy_sums(s, ce);
        if (options.accuracy) kernels::cross_entropy_ties(s, ce);
        if (split) ranks->all_reduce({max + all, dtype_of<W>, {3, all}});
        kernels::cross_entropy_loss(s, ce);
        kernels::cross_entropy_total(s, ce);
        if (!gradients) continue;
        kernels::cross_entropy_gradient(s, ce);
        if (dw)
          kernels::gemm(s, kernels::GemmArgs<T, W>{.transpose_a = true,
                                                   .m = vocab_rows,
                                                   .n = cols,
                                                   .k = n,
                                                   .alpha = scale,
                                                   .a = logits,
                                                   .lda = pitch(),
                                                   .b = some.x,
                                                   .ldb = cols,
                                                   .beta = W(dw.accumulate || c > 0),
                                                   .c = dw.tensor.ptr<W>(),
                                                   .ldc = cols});
        if (db)
          kernels::column_sum(
              s, kernels::ColumnSumArgs<T>{n, vocab_rows, pitch(), logits, db.tensor.ptr<W>(),
                                           db.accumulate || c > 0});
        if (!dx) continue;
        T* to = dx.tensor.ptr<T>() + c * cols;
        T* made = some.places ? own_x : to;  // what it held was read for the last time above
        kernels::gemm(s, kernels::GemmArgs<T>{.m = n,
                                              .n = cols,
                                              .k = vocab_rows,
                                              .alpha = scale,
                                              .a = logits,
                                              .lda = pitch(),
                                              .b = w,
                                              .ldb = cols,
                                              .beta = some.places ? W{0} : W(dx.accumulate),
                                              .c = made,
                                              .ldc = cols});
        if (!some.places) continue;
        if (!dx.accumulate) kernels::fill(s, kernels::FillArgs<T>{all * cols, T{}, to});
        for (std::int64_t i = 0; i < n; ++i)
          kernels::copy(
              s, kernels::CopyArgs<T>{cols, made + i * cols, to + some.places[i] * cols, true});
      }
    });
  }
  void forward(graph::Exec& e) const override {
    with_float(dtype, [&]<class T>() { run<T>(e, false); });
  }
  void backward(graph::Exec& e) const override {
    with_float(dtype, [&]<class T>() { run<T>(e, true); });
  }
};

}  // namespace

graph::Value linear_cross_entropy(graph::Recorder& r, graph::Value x, graph::Value weight,
                                  graph::Value bias, graph::Value labels,
                                  CrossEntropyOptions options) {
  auto op = std::make_unique<LinearCrossEntropy>();
  op->rows = r.info(x).shape[0];
  op->cols = r.info(x).shape[1];
  op->vocab_rows = r.info(weight).shape[0];
  op->has_bias = static_cast<bool>(bias);
  op->dtype = r.dtype();
  if (options.chunk_rows == 0) {  // about 26 Mi logits, or an eighth of the rows: each chunk reads
                                  // and writes the weight's gradient
    const std::int64_t most =
        std::max({std::int64_t{256}, (26 << 20) / options.vocab_size, ceil_div(op->rows, 8)});
    options.chunk_rows = round_up(ceil_div(op->rows, ceil_div(op->rows, most)), 16);
  }
  options.chunk_rows = std::min(options.chunk_rows, op->rows);
  op->options = options;
  const graph::OutputSpec one{{1}, DType::f64};
  if (options.accuracy) return r.apply(std::move(op), {x, weight, labels, bias}, {one, one});
  return r.apply(std::move(op), {x, weight, labels, bias}, {one});
}

}  // namespace tfm::ops
