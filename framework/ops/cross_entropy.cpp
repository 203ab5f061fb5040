#include "kernels/cross_entropy.h"

#include <algorithm>

#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/scratch.h"
#include "ops/ops.h"

namespace tfm::ops {
namespace {

// Rows of a chunk to compute: all, or those with a label.
template <class T>
struct ChosenRows {
  std::int64_t n, cols;
  const T* x;
  const std::int32_t* labels;
  const std::int32_t* places = nullptr;  // in the chunk, where x is a copy; null: all
};

// The rows with a label, copied to `x` (n, cols) and `labels` (2 n: labels, places); where more
// than seven of eight have one, all rows as they are. Not `fresh`: the copies are there already.
template <class T>
ChosenRows<T> labelled(cpu::Stream& s, const ChosenRows<T>& all, T* x, std::int32_t* labels,
                       bool fresh) {
  const std::int64_t n =
      std::count_if(all.labels, all.labels + all.n, [](std::int32_t label) { return label >= 0; });
  if (n == 0 || n * 8 > all.n * 7) return all;
  std::int32_t *places = labels + all.n, *place = places;
  if (!fresh) return {n, all.cols, x, labels, places};
  for (std::int64_t r = 0; r < all.n; ++r)
    if (all.labels[r] >= 0) *place++ = static_cast<std::int32_t>(r);
  for (std::int64_t i = 0; i < n; ++i) labels[i] = all.labels[places[i]];
  kernels::embedding(s, kernels::EmbeddingArgs<T>{n, all.cols, places, all.x, 0, all.n, 1, x});
  return {n, all.cols, x, labels, places};
}
template <class T>
ChosenRows<T> labelled(cuda::Stream&, const ChosenRows<T>& all, T*, std::int32_t*, bool) {
  return all;  // labels are in device memory
}

// Adds the gradients of these rows of a chunk to `to`, at the places that they have there.
template <class T>
void add_at_places(cpu::Stream& s, const ChosenRows<T>& rows, const T* from, T* to) {
  for (std::int64_t i = 0; i < rows.n; ++i)
    kernels::copy(s, kernels::CopyArgs<T>{rows.cols, from + i * rows.cols,
                                          to + rows.places[i] * rows.cols, true});
}
template <class T>
void add_at_places(cuda::Stream&, const ChosenRows<T>&, const T*, T*) {}

// Where things of a chunk of R rows lie, in bytes. Rows of logits start at multiples of 64 bytes:
// without, matrix products on GPUs take slower kernels, and those on CPUs cannot write whole lines.
struct Workspace {
  std::int64_t rows, cols, vocab_rows, shards, element, accum;

  std::int64_t pitch() const { return round_up(vocab_rows, 64 / element); }
  // logits (R, pitch) at 0
  std::int64_t statistics() const { return round_up(rows * pitch() * element, 64); }  // (4, R)
  std::int64_t gathered() const {  // (ranks, 4, R), where there are several
    return statistics() + round_up(4 * rows * accum, 64);
  }
  std::int64_t losses() const {  // (R) f64
    return gathered() + (shards > 1 ? round_up(shards * 4 * rows * accum, 64) : 0);
  }
  // Of the rows that have a label, where the host knows them and they are few: the others have no
  // loss and pass no gradient.
  std::int64_t own_x() const { return losses() + round_up(rows * 8, 64); }  // (R, C)
  std::int64_t own_labels() const {  // (2, R) i32: labels, places
    return own_x() + round_up(rows * cols * element, 64);
  }
  std::int64_t bytes() const { return own_labels() + 2 * rows * 4; }
};

// Of so many rows, in chunks.
std::vector<graph::Work::Product> products(std::int64_t rows, std::int64_t chunk, std::int64_t cols,
                                           std::int64_t vocab_rows, bool gradients) {
  std::vector<graph::Work::Product> all;
  const std::int64_t whole = rows / chunk, rest = rows % chunk;
  for (const auto& [n, count] : {std::pair{chunk, whole}, {rest, std::int64_t{1}}}) {
    if (n * count == 0) continue;
    all.push_back({n, vocab_rows, cols, count});
    if (!gradients) continue;
    all.push_back({n, cols, vocab_rows, count});
    all.push_back({.m = vocab_rows, .n = cols, .k = n, .count = count, .sum = true});
  }
  return all;
}

struct LinearCrossEntropy final : graph::StagedOp {
  enum In { x, weight, labels, bias };
  enum Out { total, correct };

  std::int64_t rows, cols, vocab_rows;
  CrossEntropyOptions options;
  bool has_bias;
  DType dtype;

  std::string_view kind() const override { return "cross_entropy"; }
  graph::Saved saved() const override { return {.inputs = {x, weight, labels, bias}}; }
  bool forward_with_backward() const override { return true; }
  // Statistics read the logits, which become gradients in place. One kernel does both, and reads
  // them once, where this rank has whole rows that it can hold.
  graph::Work work(graph::Phase phase) const override {
    const bool gradients = phase == graph::Phase::backward;
    const bool combine = options.shards > 1,
               apart = combine || !kernels::holds_row(vocab_rows, size(dtype));
    graph::Work w{.extra_elements = rows * vocab_rows * (gradients ? 2 + apart + has_bias : 1),
                  .kernels = static_cast<int>(chunks()) *
                             (3 + combine + (gradients ? 2 + apart + has_bias : 0))};
    w.products = products(rows, chunk(), cols, vocab_rows, gradients);
    return w;
  }
  std::int64_t chunk() const { return options.chunk_rows; }
  std::int64_t chunks() const { return ceil_div(rows, chunk()); }
  Workspace space() const {
    return {chunk(), cols, vocab_rows, options.shards, size(dtype), size(accum_type(dtype))};
  }
  static std::int64_t size(DType t) { return static_cast<std::int64_t>(size_of(t)); }
  std::int64_t workspace_bytes(graph::Phase) const override { return space().bytes(); }
  std::int64_t scratch_bytes(graph::Phase, DType) const override {
    return has_bias ? kernels::column_sum_scratch(chunk(), vocab_rows, size(accum_type(dtype))) : 0;
  }
  std::int64_t rows_of(std::int64_t c) const { return std::min(chunk(), rows - c * chunk()); }
  // The statistics of each chunk.
  std::vector<comm::CollectiveCall> exchanges(graph::Phase) const override {
    std::vector<comm::CollectiveCall> all;
    for (std::int64_t c = 0; options.shards > 1 && c < chunks(); ++c)
      all.push_back({comm::Collective::all_gather, comm::Axis::tensor,
                     options.shards * 4 * rows_of(c) * size(accum_type(dtype))});
    return all;
  }
  graph::Exchanged exchanged(graph::Phase, std::size_t k, const graph::Exec& e) const override {
    const std::int64_t n = 4 * rows_of(static_cast<std::int64_t>(k));
    const DType t = accum_type(dtype);
    return {{e.workspace() + space().statistics(), t, {n}},
            {e.workspace() + space().gathered(), t, {options.shards * n}}};
  }
  void stage(graph::Phase p, std::size_t k, graph::Exec& e) const override {
    const bool gradients = p == graph::Phase::backward;
    with_float(dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) {
        if (k == 0)
          for (double* sum : {e.out(total).ptr<double>(), hits(e)})
            if (sum) kernels::fill(s, kernels::FillArgs<double>{1, 0, sum});
        if (options.shards == 1)
          for (std::int64_t c = 0; c < chunks(); ++c) {
            const Chunk<T> at = chunk_at<T>(s, e, c, true);
            make_logits(s, e, at);
            if (gradients)
              kernels::cross_entropy_statistics_and_gradient(s, at.args);
            else
              kernels::cross_entropy_statistics(s, at.args);
            make_loss(s, e, at, gradients);
          }
        else
          between_exchanges<T>(s, e, static_cast<std::int64_t>(k), gradients);
      });
    });
  }

 private:
  // A chunk at work.
  template <class T>
  struct Chunk {
    std::int64_t first, all;  // of the op's rows
    ChosenRows<T> some;
    T* own_x;
    kernels::CrossEntropyArgs<T> args;
  };

  double* hits(const graph::Exec& e) const {
    return options.accuracy ? e.out(correct).ptr<double>() : nullptr;
  }

  // Behind the exchange of chunk k - 1 and in front of that of chunk k.
  template <class T, class S>
  void between_exchanges(S& s, graph::Exec& e, std::int64_t k, bool gradients) const {
    if (k > 0) {
      const Chunk<T> at = chunk_at<T>(s, e, k - 1, false);
      kernels::cross_entropy_combine(
          s, kernels::CombineArgs<T>{
                 .ranks = options.shards,
                 .rows = at.some.n,
                 .stride = 4 * at.all,
                 .parts = reinterpret_cast<Accum<T>*>(e.workspace() + space().gathered()),
                 .max = at.args.max,
                 .sums = at.args.sums,
                 .ties = options.accuracy});
      if (gradients) kernels::cross_entropy_gradient(s, at.args);
      make_loss(s, e, at, gradients);
    }
    if (k == chunks()) return;
    const Chunk<T> at = chunk_at<T>(s, e, k, true);
    if (at.some.n < at.all)  // ranks exchange what the plan says
      kernels::fill(s, kernels::FillArgs<Accum<T>>{4 * at.all, 0, at.args.max});
    make_logits(s, e, at);
    kernels::cross_entropy_statistics(s, at.args);
  }

  template <class T, class S>
  Chunk<T> chunk_at(S& s, const graph::Exec& e, std::int64_t c, bool fresh) const {
    using W = Accum<T>;
    std::byte* ws = e.workspace();
    const Workspace at_byte = space();
    W* max = reinterpret_cast<W*>(ws + at_byte.statistics());
    Chunk<T> at{.first = c * chunk(),
                .all = rows_of(c),
                .own_x = reinterpret_cast<T*>(ws + at_byte.own_x())};
    at.some = labelled(s,
                       ChosenRows<T>{at.all, cols, e.in(x).ptr<T>() + at.first * cols,
                                     e.in(labels).ptr<std::int32_t>() + at.first},
                       at.own_x, reinterpret_cast<std::int32_t*>(ws + at_byte.own_labels()), fresh);
    at.args = {.rows = at.some.n,
               .cols = options.vocab_end - options.vocab_begin,
               .stride = at_byte.pitch(),
               .padded_cols = vocab_rows,
               .vocab_begin = options.vocab_begin,
               .vocab_size = options.vocab_size,
               .logits = reinterpret_cast<T*>(ws),
               .labels = at.some.labels,
               .max = max,
               .sums = max + at.some.n,
               .smoothing = W(options.smoothing),
               .gradient_scale =
                   e.numbers()
                       ? &e.numbers()->gradient_scale[static_cast<std::size_t>(options.objective)]
                       : nullptr,
               .loss = reinterpret_cast<double*>(ws + at_byte.losses()),
               .total = e.out(total).ptr<double>(),
               .correct = hits(e)};
    return at;
  }

  template <class T, class S>
  void make_logits(S& s, const graph::Exec& e, const Chunk<T>& at) const {
    kernels::gemm(s, kernels::GemmArgs<T>{.transpose_b = true,
                                          .m = at.some.n,
                                          .n = vocab_rows,
                                          .k = cols,
                                          .alpha = static_cast<Accum<T>>(options.scale),
                                          .a = at.some.x,
                                          .lda = cols,
                                          .b = e.in(weight).ptr<T>(),
                                          .ldb = cols,
                                          .c = at.args.logits,
                                          .ldc = at.args.stride,
                                          .bias = e.in(bias).ptr<T>()});
    if (e.context.round_inner)
      e.context.round_inner({at.args.logits, dtype, {at.some.n * at.args.stride}});
  }

  template <class T, class S>
  void make_loss(S& s, const graph::Exec& e, const Chunk<T>& at, bool gradients) const {
    using W = Accum<T>;
    kernels::cross_entropy_loss(s, at.args);
    if (!gradients) return;
    if (e.context.round_inner)
      e.context.round_inner({at.args.logits, dtype, {at.some.n * at.args.stride}});
    const W scale = static_cast<W>(options.scale);
    const T* logits = at.args.logits;
    const graph::GradSlot dx = e.grad_in(x), dw = e.grad_in(weight), db = e.grad_in(bias);
    if (dw)
      kernels::gemm(s, kernels::GemmArgs<T, W>{.transpose_a = true,
                                               .m = vocab_rows,
                                               .n = cols,
                                               .k = at.some.n,
                                               .alpha = scale,
                                               .a = logits,
                                               .lda = at.args.stride,
                                               .b = at.some.x,
                                               .ldb = cols,
                                               .beta = W(dw.accumulate || at.first > 0),
                                               .c = dw.tensor.ptr<W>(),
                                               .ldc = cols});
    if (db)
      kernels::column_sum(
          s, kernels::ColumnSumArgs<T>{at.some.n, vocab_rows, at.args.stride, logits,
                                       db.tensor.ptr<W>(), db.accumulate || at.first > 0});
    if (!dx) return;
    const ChosenRows<T>& some = at.some;
    T* to = dx.tensor.ptr<T>() + at.first * cols;
    T* made = some.places ? at.own_x : to;  // what it held was read for the last time above
    kernels::gemm(s, kernels::GemmArgs<T>{.m = some.n,
                                          .n = cols,
                                          .k = vocab_rows,
                                          .alpha = scale,
                                          .a = logits,
                                          .lda = at.args.stride,
                                          .b = e.in(weight).ptr<T>(),
                                          .ldb = cols,
                                          .beta = some.places ? W{0} : W(dx.accumulate),
                                          .c = made,
                                          .ldc = cols});
    if (!some.places) return;
    if (!dx.accumulate) kernels::fill(s, kernels::FillArgs<T>{at.all * cols, T{}, to});
    add_at_places(s, some, made, to);
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
