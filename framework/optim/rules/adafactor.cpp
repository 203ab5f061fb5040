// Adafactor (Shazeer & Stern 2018) as torch.optim.Adafactor has it: the second moment of a matrix
// is the product of means over its columns and over its rows, updates are scaled by the root mean
// square of the parameter and clipped to one of their own; no first moment.
#include <algorithm>
#include <cmath>

#include "kernels/factored_moments.h"
#include "optim/rules/by_part.h"
#include "optim/rules/registry.h"

namespace tfm::optim {
namespace {

class Adafactor final : public Rule {
 public:
  explicit Adafactor(const config::OptimizerConfig& o)
      : options_(o.adafactor), weight_decay_(o.weight_decay) {}

  std::vector<ParameterGroup> groups() const override { return {{}, {{"adafactor.v"}}}; }
  int group_of(const nn::ParameterSpec& spec) const override { return spec.cols > 0 ? 0 : 1; }
  std::vector<PartState> part_states(const nn::ParameterSet& parameters) const override {
    std::vector<PartState> all;
    for (int p = 0; p < static_cast<int>(parameters.slices().size()); ++p)
      if (const nn::PartSlice& s = parameters.slices()[static_cast<std::size_t>(p)];
          is_matrix(parameters, s)) {
        const Shape& full = s.full;
        all.push_back({.name = "adafactor.row", .part = p, .shape = {full[0]}});
        all.push_back({.name = "adafactor.column", .part = p, .shape = {full[1]}});
      }
    return all;
  }
  // correction1: the share of new squares; correction2: the largest rate.
  UpdateNumbers numbers(std::int64_t update, double lr) const override {
    const auto t = static_cast<double>(update);
    return {.lr = lr,
            .correction1 = std::pow(t, options_.beta2_decay),
            .correction2 = 1 / std::sqrt(t)};
  }
  std::int64_t workspace_bytes(const nn::ParameterSet& parameters, const comm::Layout&,
                               DType) const override {
    return Workspace(parameters).bytes;
  }
  std::int64_t scratch_bytes(const nn::ParameterSet& parameters) const override {
    std::int64_t most = kernels::part_update_scratch();
    for (const nn::PartSlice& s : parameters.slices())
      if (s.full.rank() > 1 && s.elements() > 0)
        most = std::max(most, kernels::column_sum_scratch(s.elements() / width_of(s), width_of(s),
                                                          sizeof(std::int64_t)));
    return most;
  }
  std::vector<comm::CollectiveCall> collectives(const nn::ParameterSet& parameters,
                                                const comm::Layout& layout, DType) const override {
    return {reduction_of(layout, Workspace(parameters).sums * kWord),
            reduction_of(layout, squares_bytes(parameters))};
  }
  double further_accesses() const override { return 6; }
  void update(const Update& u) const override {
    on_stream(u, [&]<class P>(auto& stream) { update_on<P>(stream, u); });
  }

 private:
  static constexpr std::int64_t kWord = sizeof(std::int64_t);
  static_assert(sizeof(double) == kWord);

  // Sums of all matrices, which lie as their states do; the squares of all parts; the mean of each
  // matrix.
  struct Workspace {
    explicit Workspace(const nn::ParameterSet& parameters) {
      for (const nn::PartSlice& s : parameters.slices())
        if (is_matrix(parameters, s)) sums += s.full[0] + s.full[1];
      bytes = sums * kWord + squares_bytes(parameters) + std::ssize(parameters.slices()) * kWord;
    }
    std::int64_t sums = 0, bytes = 0;
  };

  static bool is_matrix(const nn::ParameterSet& parameters, const nn::PartSlice& s) {
    return s.full.rank() > 1 && parameters.spec(s.parameter).trained;
  }
  static std::int64_t width_of(const nn::PartSlice& s) {
    return s.axis == 1 ? s.end - s.begin : s.full[1];
  }

  // The matrices, and this rank's ranges of them that `chosen` says, in the order of parts.
  template <class T, class Chosen>
  static std::span<const kernels::MatrixElements<T>> matrix_elements(
      const Update& u, std::span<const kernels::MatrixMeans<T>> matrices, Chosen&& chosen) {
    thread_local std::vector<kernels::MatrixElements<T>> ranges;  // a step allocates nothing
    ranges.clear();
    std::size_t next = 0;  // matrix
    for (const PartRange& r : u.shards.parts) {
      const nn::PartSlice& s = slice_of(u, r);
      if (!is_matrix(u.parameters, s) || !chosen(r)) continue;
      while (matrices[next].part != r.part) ++next;
      const kernels::MatrixMeans<T>& m = matrices[next];
      // Of this rank's rows and columns within those of the whole part.
      const std::int64_t row = s.axis == 0 ? s.begin : 0,
                         column = m.rows + (s.axis == 1 ? s.begin : 0);
      ranges.push_back({r.count(), r.first, width_of(s), u.flat.gradients_of<T>(r), m.sums + row,
                        m.sums + column, m.means + row, m.means + column, m.mean});
    }
    return ranges;
  }
  template <class T>
  static std::span<const kernels::MatrixMeans<T>> matrix_means(const Update& u, std::int64_t* sums,
                                                               double* mean) {
    thread_local std::vector<kernels::MatrixMeans<T>> matrices;
    matrices.clear();
    for (const PartState& state : u.shards.part_states) {
      if (state.name != "adafactor.row") continue;
      const Shape& full = u.parameters.slices()[static_cast<std::size_t>(state.part)].full;
      matrices.push_back({state.part, full[0], full[1], sums,
                          static_cast<T*>(u.flat.state) + state.offset, mean + state.part});
      sums += full[0] + full[1];
    }
    return matrices;
  }

  template <class P, class Stream>
  void update_on(Stream& stream, const Update& u) const {
    using T = Accum<P>;
    const Workspace w(u.parameters);
    auto* const sums = static_cast<std::int64_t*>(u.flat.workspace);
    auto* const squares = reinterpret_cast<kernels::PartSquares*>(sums + w.sums);
    auto* const mean = reinterpret_cast<double*>(squares + u.parameters.slices().size());
    const auto any = [](const PartRange&) { return true; };
    const auto counts = [](const PartRange& r) { return r.counted; };
    const auto matrices = matrix_means<T>(u, sums, mean);

    clear(stream, sums, w.bytes);
    kernels::add_row_column_squares(
        stream, kernels::RowColumnSquaresArgs<T>{matrix_elements<T>(u, matrices, counts), u.numbers,
                                                 u.outcome});
    u.calls->next({sums, DType::i64, {w.sums}});
    kernels::update_means(
        stream, kernels::UpdateMeansArgs<T>{matrices, options_.eps1, u.numbers, u.outcome});
    kernels::divide_by_means(
        stream, kernels::DivideByMeansArgs<T>{matrix_elements<T>(u, matrices, any), options_.eps1,
                                              u.outcome});
    const auto vectors = part_elements<P>(u, [](const PartRange& r) { return r.group == 1; });
    kernels::divide_by_root(
        stream, kernels::DivideByRootArgs<T, P>{vectors, options_.eps1, u.numbers, u.outcome});
    kernels::add_squares(
        stream, kernels::PartSquaresArgs<T, P>{part_elements<P>(u, counts), u.outcome, squares});
    all_reduce(u, squares);
    kernels::descend(stream, kernels::DescendArgs<kernels::ClippedRms, T, P>{
                                 part_elements<P>(u, any),
                                 {options_.eps2, options_.clip_threshold, weight_decay_},
                                 u.numbers,
                                 u.outcome,
                                 squares});
  }

  config::AdafactorConfig options_;
  double weight_decay_;
};

}  // namespace

std::shared_ptr<const Rule> make_adafactor(const config::OptimizerConfig& o) {
  return std::make_shared<Adafactor>(o);
}

}  // namespace tfm::optim
