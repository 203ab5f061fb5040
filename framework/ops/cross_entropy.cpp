#include "kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/packed_rows.h"
#include "kernels/scratch.h"
#include "ops/losses.h"

namespace tfm::ops {
namespace {

// Where things of a chunk of R rows lie, in bytes. Rows of logits start at multiples of 64 bytes:
// without, matrix products on GPUs take slower kernels, and those on CPUs cannot write whole lines.
struct Workspace {
  std::int64_t rows, all_rows, cols, vocab_rows, shards, element, accum;

  std::int64_t pitch() const { return round_up(vocab_rows, 64 / element); }
  // logits (R, pitch) at 0
  std::int64_t statistics() const { return round_up(rows * pitch() * element, 64); }  // (4, R)
  std::int64_t gathered() const {  // (ranks, 4, R), where there are several
    return statistics() + round_up(4 * rows * accum, 64);
  }
  std::int64_t losses() const {  // (R) f64
    return gathered() + (shards > 1 ? round_up(shards * 4 * rows * accum, 64) : 0);
  }
  // Where only the rows with a label are computed: copies of x and gradients of the chunk, and of
  // all chunks the places and labels.
  std::int64_t packed_x() const { return losses() + round_up(rows * 8, 64); }  // (R, C)
  std::int64_t places() const {                                                // (N) i32
    return packed_x() + round_up(rows * cols * element, 64);
  }
  std::int64_t packed_labels() const { return places() + round_up(all_rows * 4, 64); }  // (N) i32
  std::int64_t bytes() const { return packed_labels() + all_rows * 4; }
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

// A chunk at work: rows as they are, or packed.
template <class T>
struct Chunk {
  std::int64_t first, all, cols;  // rows before it; that it may have; of x
  Accum<T> scale;
  const std::int32_t* places;  // of its rows in the op's; null: they are not packed
  T* packed_x;
  const T* x;
  kernels::CrossEntropyArgs<T> args;
};

// The logits.
template <class T, class S>
void multiply(S& s, const Chunk<T>& at, const T* weight, const T* bias) {
  kernels::gemm(s, kernels::GemmArgs<T>{.transpose_b = true,
                                        .m = at.args.rows,
                                        .n = at.args.padded_cols,
                                        .k = at.cols,
                                        .alpha = at.scale,
                                        .a = at.x,
                                        .lda = at.cols,
                                        .b = weight,
                                        .ldb = at.cols,
                                        .c = at.args.logits,
                                        .ldc = at.args.stride,
                                        .bias = bias});
  if (at.args.softcap > 0)
    kernels::softcap(s, kernels::SoftcapArgs<T>{at.args.rows, at.args.padded_cols, at.args.stride,
                                                at.args.softcap, at.args.logits, at.args.logits});
}

// From those of the logits.
template <class T, class S>
void make_gradients(S& s, const Chunk<T>& at, const T* weight, const graph::GradSlot& dx,
                    const graph::GradSlot& dw, const graph::GradSlot& db) {
  using W = Accum<T>;
  const std::int64_t n = at.args.rows, cols = at.cols, vocab_rows = at.args.padded_cols;
  if (dw)
    kernels::gemm(s, kernels::GemmArgs<T, W>{.transpose_a = true,
                                             .m = vocab_rows,
                                             .n = cols,
                                             .k = n,
                                             .alpha = at.scale,
                                             .a = at.args.logits,
                                             .lda = at.args.stride,
                                             .b = at.x,
                                             .ldb = cols,
                                             .beta = W(dw.accumulate || at.first > 0),
                                             .c = dw.tensor.ptr<W>(),
                                             .ldc = cols});
  if (db)
    kernels::column_sum(
        s, kernels::ColumnSumArgs<T>{n, vocab_rows, at.args.stride, at.args.logits,
                                     db.tensor.ptr<W>(), db.accumulate || at.first > 0});
  if (!dx) return;
  T* const to = dx.tensor.ptr<T>();
  // What packed_x held was read for the last time above.
  kernels::gemm(s, kernels::GemmArgs<T>{.m = n,
                                        .n = cols,
                                        .k = vocab_rows,
                                        .alpha = at.scale,
                                        .a = at.args.logits,
                                        .lda = at.args.stride,
                                        .b = weight,
                                        .ldb = cols,
                                        .beta = at.places ? W{0} : W(dx.accumulate),
                                        .c = at.places ? at.packed_x : to + at.first * cols,
                                        .ldc = cols});
  if (at.places)
    kernels::scatter_rows(
        s, kernels::ScatterRowsArgs<T>{n, cols, at.places, at.packed_x, to, dx.accumulate});
}

template <class T>
T* in_workspace(const graph::Exec& e, std::int64_t bytes) {
  return reinterpret_cast<T*>(e.workspace() + bytes);
}

struct LinearCrossEntropy final : graph::StagedOp {
  enum In { x, weight, labels, bias, factors };
  enum Out { total, correct };

  std::int64_t rows, cols, vocab_rows;
  CrossEntropyOptions options;
  bool trains_bias;
  DType dtype;

  std::string_view kind() const override { return "cross_entropy"; }
  graph::Saved saved() const override { return {.inputs = {x, weight, labels, bias, factors}}; }
  bool forward_with_backward() const override { return true; }
  // Statistics read the logits, which become gradients in place. One kernel does both, and reads
  // them once, where this rank has whole rows that it can hold. Where rows are packed, they are
  // copied, and their gradients to a tensor of zeros.
  graph::Work work(graph::Phase phase) const override {
    const bool gradients = phase == graph::Phase::backward;
    const bool combine = options.shards > 1, caps = options.softcap > 0,
               apart = combine || !kernels::holds_row(vocab_rows, size_of(dtype));
    const std::int64_t n = expected_rows(),
                       passes = caps + (gradients ? 2 + apart + trains_bias : 1);
    graph::Work w{
        .extra_elements = n * vocab_rows * passes,
        .kernels = static_cast<int>(ceil_div(n, chunk()) * (2 + gradients + combine + passes))};
    if (n < rows) {
      w.extra_elements += cols * (gradients ? 4 * n + rows : 2 * n);
      w.kernels += 1 + static_cast<int>(ceil_div(n, chunk())) * (gradients ? 2 : 1) + gradients;
    }
    w.products = products(n, chunk(), cols, vocab_rows, gradients);
    return w;
  }
  // Rows that are computed, for predictions and sizes.
  std::int64_t expected_rows() const {
    if (options.labelled >= 1) return rows;
    return kernels::packed_rows(rows, std::llround(options.labelled * static_cast<double>(rows)));
  }
  // Rows of about 104 MiB of logits, at least an eighth: each chunk reads and writes the weight's
  // gradient. Ranks exchange chunks without a label, too, so that there they are not made for few.
  std::int64_t chosen_chunk() const {
    const std::int64_t n = options.shards > 1 ? rows : expected_rows(),
                       fit = (104 << 20) / (options.vocab_size * size_of(dtype)),
                       most = std::max({std::int64_t{256}, fit, ceil_div(n, 8)});
    return round_up(ceil_div(n, ceil_div(n, most)), 16);
  }
  std::int64_t chunk() const { return options.chunk_rows; }
  std::int64_t chunks() const { return ceil_div(rows, chunk()); }
  Workspace space() const {
    const std::int64_t element = size_of(dtype), sum = size_of(accum_type(dtype));
    return {chunk(), rows, cols, vocab_rows, options.shards, element, sum};
  }
  std::int64_t workspace_bytes(graph::Phase) const override { return space().bytes(); }
  std::int64_t scratch_bytes(graph::Phase, DType) const override {
    if (!trains_bias) return 0;
    return kernels::column_sum_scratch(chunk(), vocab_rows, size_of(accum_type(dtype)));
  }
  std::int64_t rows_of(std::int64_t c) const { return std::min(chunk(), rows - c * chunk()); }
  std::vector<comm::CollectiveCall> exchanges(graph::Phase) const override {
    std::vector<comm::CollectiveCall> all;
    for (std::int64_t c = 0; options.shards > 1 && c < chunks(); ++c)
      all.push_back({comm::Collective::all_gather, comm::Axis::tensor,
                     options.shards * 4 * rows_of(c) * size_of(accum_type(dtype)),
                     comm::Purpose::softmax});
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
        if (k == 0) start<T>(s, e, gradients);
        if (options.shards == 1)
          for (std::int64_t c = 0; c * chunk() < taken(s, e); ++c) {
            const Chunk<T> at = chunk_at<T>(s, e, c);
            make_logits(s, e, at);
            gradients ? kernels::cross_entropy_statistics_and_gradient(s, at.args)
                      : kernels::cross_entropy_statistics(s, at.args);
            make_loss(s, e, at, gradients);
          }
        else
          between_exchanges<T>(s, e, static_cast<std::int64_t>(k), gradients);
      });
    });
  }

 private:
  // Rows that are computed: those with a label, where they are known to be few.
  std::int64_t taken(const cpu::Stream&, const graph::Exec& e) const {
    const auto* all = e.in(labels).ptr<std::int32_t>();
    const std::int64_t n =
        std::count_if(all, all + rows, [](std::int32_t label) { return label >= 0; });
    return n * 8 > rows * 7 ? rows : std::max<std::int64_t>(n, 1);
  }
  std::int64_t taken(const cuda::Stream&, const graph::Exec& e) const {
    const std::int64_t n = e.state().packed_rows[static_cast<std::size_t>(options.objective)];
    return n > 0 ? n : rows;
  }

  double* hits(const graph::Exec& e) const {
    return options.accuracy ? e.out(correct).ptr<double>() : nullptr;
  }

  template <class T, class S>
  void start(S& s, const graph::Exec& e, bool gradients) const {
    for (double* sum : {e.out(total).ptr<double>(), hits(e)})
      if (sum) kernels::fill(s, kernels::FillArgs<double>{1, 0, sum});
    const std::int64_t n = taken(s, e);
    if (n == rows) return;
    kernels::pack_rows(
        s, kernels::PackRowsArgs{rows, e.in(labels).ptr<std::int32_t>(), n,
                                 in_workspace<std::int32_t>(e, space().places()),
                                 in_workspace<std::int32_t>(e, space().packed_labels())});
    if (!gradients) return;
    if (const graph::GradSlot& dx = e.grad_in(x); dx && !dx.accumulate)
      kernels::fill(s, kernels::FillArgs<T>{rows * cols, T{}, dx.tensor.ptr<T>()});
  }

  // Behind the exchange of chunk k - 1 and in front of that of chunk k. Ranks exchange what the
  // plan says, of chunks without rows, too.
  template <class T, class S>
  void between_exchanges(S& s, graph::Exec& e, std::int64_t k, bool gradients) const {
    if (k > 0)
      if (const Chunk<T> at = chunk_at<T>(s, e, k - 1); at.args.rows > 0) {
        kernels::cross_entropy_combine(
            s, kernels::CombineArgs<T>{.ranks = options.shards,
                                       .rows = at.args.rows,
                                       .stride = 4 * at.all,
                                       .parts = in_workspace<Accum<T>>(e, space().gathered()),
                                       .max = at.args.max,
                                       .sums = at.args.sums,
                                       .ties = options.accuracy});
        if (gradients) kernels::cross_entropy_gradient(s, at.args);
        make_loss(s, e, at, gradients);
      }
    if (k == chunks()) return;
    const Chunk<T> at = chunk_at<T>(s, e, k);
    if (at.args.rows < at.all)
      kernels::fill(s, kernels::FillArgs<Accum<T>>{4 * at.all, 0, at.args.max});
    if (at.args.rows == 0) return;
    make_logits(s, e, at);
    kernels::cross_entropy_statistics(s, at.args);
  }

  template <class T, class S>
  Chunk<T> chunk_at(const S& s, const graph::Exec& e, std::int64_t c) const {
    using W = Accum<T>;
    const Workspace at_byte = space();
    const std::int64_t in_use = taken(s, e), first = c * chunk(),
                       n = std::clamp<std::int64_t>(in_use - first, 0, rows_of(c));
    const bool packed = in_use < rows;
    W* const max = in_workspace<W>(e, at_byte.statistics());
    T* const packed_x = in_workspace<T>(e, at_byte.packed_x());
    return {
        .first = first,
        .all = rows_of(c),
        .cols = cols,
        .scale = static_cast<W>(options.scale),
        .places = packed ? in_workspace<std::int32_t>(e, at_byte.places()) + first : nullptr,
        .packed_x = packed_x,
        .x = packed ? packed_x : e.in(x).ptr<T>() + first * cols,
        .args = {.rows = n,
                 .cols = options.vocab_end - options.vocab_begin,
                 .stride = at_byte.pitch(),
                 .padded_cols = vocab_rows,
                 .vocab_begin = options.vocab_begin,
                 .vocab_size = options.vocab_size,
                 .logits = in_workspace<T>(e, 0),
                 .labels = packed ? in_workspace<std::int32_t>(e, at_byte.packed_labels()) + first
                                  : e.in(labels).ptr<std::int32_t>() + first,
                 .max = max,
                 .sums = max + n,
                 .class_weights = e.in(factors).ptr<double>(),
                 .smoothing = W(options.smoothing),
                 .softcap = W(options.softcap),
                 .gradient_scale =
                     e.numbers()
                         ? &e.numbers()->gradient_scale[static_cast<std::size_t>(options.objective)]
                         : nullptr,
                 .loss = in_workspace<double>(e, at_byte.losses()),
                 .total = e.out(total).ptr<double>(),
                 .correct = hits(e)}};
  }

  template <class T, class S>
  void make_logits(S& s, const graph::Exec& e, const Chunk<T>& at) const {
    if (at.places)
      kernels::embedding(s, kernels::EmbeddingArgs<T>{at.args.rows, cols, at.places,
                                                      e.in(x).ptr<T>(), 0, rows, 1, at.packed_x});
    multiply(s, at, e.in(weight).ptr<T>(), e.in(bias).ptr<T>());
    show(e, at);
  }

  template <class T, class S>
  void make_loss(S& s, const graph::Exec& e, const Chunk<T>& at, bool gradients) const {
    kernels::cross_entropy_loss(s, at.args);
    if (!gradients) return;
    show(e, at);
    make_gradients(s, at, e.in(weight).ptr<T>(), e.grad_in(x), e.grad_in(weight), e.grad_in(bias));
  }

  template <class T>
  void show(const graph::Exec& e, const Chunk<T>& at) const {
    if (e.context.hooks)
      e.context.hooks->inner({at.args.logits, dtype, {at.args.rows * at.args.stride}});
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
  op->trains_bias = bias && r.info(bias).wants_grad;
  op->dtype = r.dtype();
  op->options = options;
  if (options.chunk_rows == 0) op->options.chunk_rows = op->chosen_chunk();
  op->options.chunk_rows = std::min(op->options.chunk_rows, op->rows);
  const graph::OutputSpec one{{1}, DType::f64};
  const std::vector<graph::Value> inputs{x, weight, labels, bias, options.class_weights};
  if (options.accuracy) return r.apply(std::move(op), inputs, {one, one});
  return r.apply(std::move(op), inputs, {one});
}

}  // namespace tfm::ops
