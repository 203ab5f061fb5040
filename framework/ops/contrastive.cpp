#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/packed_rows.h"
#include "ops/losses.h"

namespace tfm::ops {
namespace {

// Where things lie, in bytes: documents of this rank and of all, what is computed of a group of P
// queries and V documents, and gradients of the documents in the type of sums.
struct PairsWorkspace {
  std::int64_t own, all, cols, pairs, candidates, element, accum;

  static std::int64_t whole_lines(std::int64_t bytes) { return round_up(bytes, 64); }
  std::int64_t pitch() const { return round_up(candidates, 64 / element); }
  // documents (own, C) at 0
  std::int64_t gathered() const { return whole_lines(own * cols * element); }  // (all, C)
  std::int64_t queries() const {                                               // (P, C)
    return gathered() + (all > own ? whole_lines(all * cols * element) : 0);
  }
  std::int64_t logits() const {  // (P, pitch)
    return queries() + whole_lines(pairs * cols * element);
  }
  std::int64_t statistics() const {  // (4, P)
    return logits() + whole_lines(pairs * pitch() * element);
  }
  std::int64_t losses() const { return statistics() + whole_lines(4 * pairs * accum); }  // (P) f64
  std::int64_t places() const { return losses() + whole_lines(pairs * 8); }              // (P) i32
  std::int64_t labels() const { return places() + whole_lines(pairs * 4); }              // (P) i32
  std::int64_t gradients() const { return labels() + whole_lines(pairs * 4); }           // (all, C)
  std::int64_t own_gradients() const {                                                   // (own, C)
    return gradients() + whole_lines(all * cols * accum);
  }
  std::int64_t bytes() const { return own_gradients() + (all > own ? own * cols * accum : 0); }
};

template <class T>
T* in_pairs_workspace(const graph::Exec& e, std::int64_t bytes) {
  return reinterpret_cast<T*>(e.workspace() + bytes);
}

// Queries of `rows` rows, and the documents that they are compared with.
template <class T>
struct Group {
  std::int64_t rows, cols;
  Accum<T> scale;
  const T* x;
  std::int32_t* places;  // of the queries in x
  T* queries;
  const T* documents;
  Accum<T>* gradients;  // of the documents
  kernels::CrossEntropyArgs<T> args;
};

template <class T, class S>
void make_logits(S& s, const Group<T>& g, const std::int32_t* labels, std::int32_t* wanted) {
  const std::int64_t n = g.args.rows;
  kernels::pack_rows(s, kernels::PackRowsArgs{g.rows, labels, n, g.places, wanted});
  kernels::embedding(s,
                     kernels::EmbeddingArgs<T>{n, g.cols, g.places, g.x, 0, g.rows, 1, g.queries});
  kernels::gemm(s, kernels::GemmArgs<T>{.transpose_b = true,
                                        .m = n,
                                        .n = g.args.cols,
                                        .k = g.cols,
                                        .alpha = g.scale,
                                        .a = g.queries,
                                        .lda = g.cols,
                                        .b = g.documents,
                                        .ldb = g.cols,
                                        .c = g.args.logits,
                                        .ldc = g.args.stride});
}

// Of the documents, and of the queries in their place, from those of the logits.
template <class T, class S>
void make_gradients(S& s, const Group<T>& g) {
  kernels::gemm(s, kernels::GemmArgs<T, Accum<T>>{.transpose_a = true,
                                                  .m = g.args.cols,
                                                  .n = g.cols,
                                                  .k = g.args.rows,
                                                  .alpha = g.scale,
                                                  .a = g.args.logits,
                                                  .lda = g.args.stride,
                                                  .b = g.queries,
                                                  .ldb = g.cols,
                                                  .c = g.gradients,
                                                  .ldc = g.cols});
  kernels::gemm(s, kernels::GemmArgs<T>{.m = g.args.rows,
                                        .n = g.cols,
                                        .k = g.args.cols,
                                        .alpha = g.scale,
                                        .a = g.args.logits,
                                        .lda = g.args.stride,
                                        .b = g.documents,
                                        .ldb = g.cols,
                                        .c = g.queries,
                                        .ldc = g.cols});
}

graph::Work work_of(const PairsWorkspace& s, std::int64_t groups, bool gradients) {
  graph::Work w{
      .extra_elements =
          groups * s.pairs * (s.candidates * (gradients ? 3 : 1) + s.cols * (gradients ? 5 : 2)),
      .kernels = static_cast<int>(groups) * (gradients ? 8 : 5) + 2};
  w.products.push_back({s.pairs, s.candidates, s.cols, groups});
  if (!gradients) return w;
  w.products.push_back({s.pairs, s.cols, s.candidates, groups});
  w.products.push_back(
      {.m = s.candidates, .n = s.cols, .k = s.pairs, .count = groups, .sum = true});
  return w;
}

// What is known when recording.
struct Pairs {
  std::int64_t rows, cols;
  ContrastiveOptions options;
  DType dtype;

  std::int64_t documents() const { return std::max<std::int64_t>(options.texts - 1, 1); }
  std::int64_t pairs() const { return rows / options.texts; }
  bool is_shared() const { return options.ranks > 1; }
  std::int64_t groups() const { return is_shared() ? 1 : pairs() / pairs_of_group(); }
  std::int64_t pairs_of_group() const {
    return is_shared() || options.group == 0 ? pairs() : options.group;
  }
  PairsWorkspace space() const {
    const std::int64_t own = pairs() * documents(), all = own * options.ranks;
    return {own,
            all,
            cols,
            pairs_of_group(),
            all / groups(),
            size_of(dtype),
            size_of(accum_type(dtype))};
  }
  // Columns of a pair's rows, side by side, before its documents.
  std::int64_t before_documents() const { return options.texts > 1 ? cols : 0; }
};

struct Contrastive final : graph::StagedOp, Pairs {
  enum In { x, labels };
  enum Out { total, correct };

  std::string_view kind() const override { return "contrastive"; }
  graph::Saved saved() const override { return {.inputs = {x, labels}}; }
  bool forward_with_backward() const override { return true; }
  std::int64_t workspace_bytes(graph::Phase) const override { return space().bytes(); }
  graph::Work work(graph::Phase phase) const override {
    return work_of(space(), groups(), phase == graph::Phase::backward);
  }

  std::vector<comm::CollectiveCall> exchanges(graph::Phase phase) const override {
    if (!is_shared()) return {};
    const PairsWorkspace s = space();
    std::vector<comm::CollectiveCall> all{
        {comm::Collective::all_gather, options.axes, s.all * cols * s.element}};
    if (phase == graph::Phase::backward)
      all.push_back({comm::Collective::reduce_scatter, options.axes, s.all * cols * s.accum});
    return all;
  }
  graph::Exchanged exchanged(graph::Phase, std::size_t k, const graph::Exec& e) const override {
    const PairsWorkspace s = space();
    const auto at = [&](std::int64_t byte, DType t, std::int64_t n) {
      return Tensor{e.workspace() + byte, t, {n, cols}};
    };
    if (k == 0) return {at(0, dtype, s.own), at(s.gathered(), dtype, s.all)};
    const DType t = accum_type(dtype);
    return {at(s.gradients(), t, s.all), at(s.own_gradients(), t, s.own)};
  }
  void stage(graph::Phase phase, std::size_t k, graph::Exec& e) const override {
    const bool gradients = phase == graph::Phase::backward;
    with_float(dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) {
        if (k == 0) take_documents<T>(s, e);
        if (k == static_cast<std::size_t>(is_shared())) {
          for (double* sum : {e.out(total).ptr<double>(), hits(e)})
            if (sum) kernels::fill(s, kernels::FillArgs<double>{1, 0, sum});
          if (gradients) clear_gradient<T>(s, e);
          for (std::int64_t g = 0; g < groups(); ++g) compare<T>(s, e, g, gradients);
        }
        if (gradients && k == exchanges(phase).size()) add_gradients<T>(s, e);
      });
    });
  }

 private:
  double* hits(const graph::Exec& e) const {
    return options.accuracy ? e.out(correct).ptr<double>() : nullptr;
  }
  template <class T, class S>
  void take_documents(S& s, const graph::Exec& e) const {
    kernels::copy_rows(
        s, kernels::CopyRowsArgs<T>{pairs(), documents() * cols,
                                    e.in(x).ptr<T>() + before_documents(), options.texts * cols,
                                    in_pairs_workspace<T>(e, 0), documents() * cols, false});
  }

  template <class T, class S>
  void clear_gradient(S& s, const graph::Exec& e) const {
    if (const graph::GradSlot dx = e.grad_in(x); dx && !dx.accumulate)
      kernels::fill(s, kernels::FillArgs<T>{rows * cols, T{}, dx.tensor.ptr<T>()});
  }

  template <class T>
  Group<T> group_at(const graph::Exec& e, std::int64_t group) const {
    using W = Accum<T>;
    const PairsWorkspace at = space();
    const std::int64_t begin = group * at.candidates * cols;
    W* const max = in_pairs_workspace<W>(e, at.statistics());
    return {
        .rows = at.pairs * options.texts,
        .cols = cols,
        .scale = static_cast<W>(options.scale),
        .x = e.in(x).ptr<T>() + group * at.pairs * options.texts * cols,
        .places = in_pairs_workspace<std::int32_t>(e, at.places()),
        .queries = in_pairs_workspace<T>(e, at.queries()),
        .documents = in_pairs_workspace<T>(e, is_shared() ? at.gathered() : 0) + begin,
        .gradients = in_pairs_workspace<W>(e, at.gradients()) + begin,
        .args = {.rows = at.pairs,
                 .cols = at.candidates,
                 .stride = at.pitch(),
                 .padded_cols = at.candidates,
                 .vocab_size = at.candidates,
                 .logits = in_pairs_workspace<T>(e, at.logits()),
                 .labels = in_pairs_workspace<std::int32_t>(e, at.labels()),
                 .max = max,
                 .sums = max + at.pairs,
                 .gradient_scale =
                     e.numbers()
                         ? &e.numbers()->gradient_scale[static_cast<std::size_t>(options.objective)]
                         : nullptr,
                 .loss = in_pairs_workspace<double>(e, at.losses()),
                 .total = e.out(total).ptr<double>(),
                 .correct = hits(e)}};
  }

  // The loss of a group, and its gradients.
  template <class T, class S>
  void compare(S& s, graph::Exec& e, std::int64_t group, bool gradients) const {
    const Group<T> g = group_at<T>(e, group);
    make_logits(s, g, e.in(labels).ptr<std::int32_t>() + group * g.rows,
                in_pairs_workspace<std::int32_t>(e, space().labels()));
    show(e, g);
    gradients ? kernels::cross_entropy_statistics_and_gradient(s, g.args)
              : kernels::cross_entropy_statistics(s, g.args);
    kernels::cross_entropy_loss(s, g.args);
    if (!gradients) return;
    show(e, g);
    make_gradients(s, g);
    if (const graph::GradSlot dx = e.grad_in(x); dx && options.makes_gradient)
      kernels::scatter_rows(s, kernels::ScatterRowsArgs<T>{
                                   g.args.rows, cols, g.places, g.queries,
                                   dx.tensor.ptr<T>() + group * g.rows * cols, dx.accumulate});
  }

  // Of this rank's documents, to their rows.
  template <class T, class S>
  void add_gradients(S& s, const graph::Exec& e) const {
    using W = Accum<T>;
    const graph::GradSlot dx = e.grad_in(x);
    if (!dx || !options.makes_gradient) return;
    const PairsWorkspace at = space();
    const std::int64_t width = documents() * cols;
    kernels::convert_rows(
        s, kernels::ConvertRowsArgs<W, T>{
               pairs(), width,
               in_pairs_workspace<W>(e, is_shared() ? at.own_gradients() : at.gradients()), width,
               dx.tensor.ptr<T>() + before_documents(), options.texts * cols, true});
  }

  template <class T>
  void show(const graph::Exec& e, const Group<T>& g) const {
    if (e.context.hooks)
      e.context.hooks->inner({g.args.logits, dtype, {g.args.rows * g.args.stride}});
  }
};

}  // namespace

graph::Value contrastive(graph::Recorder& r, graph::Value x, graph::Value labels,
                         const ContrastiveOptions& options) {
  auto op = std::make_unique<Contrastive>();
  op->rows = r.info(x).shape[0];
  op->cols = r.info(x).shape[1];
  op->dtype = r.dtype();
  op->options = options;
  TFM_CHECK(op->rows % options.texts == 0 && op->pairs() % op->pairs_of_group() == 0,
            "rows of " + r.info(x).shape.str() + " are no whole groups");
  const graph::OutputSpec one{{1}, DType::f64};
  if (options.accuracy) return r.apply(std::move(op), {x, labels}, {one, one});
  return r.apply(std::move(op), {x, labels}, {one});
}

}  // namespace tfm::ops
