// Adafactor (Shazeer & Stern 2018) as torch.optim.Adafactor has it: the second moment of a matrix
// is the product of means over its columns and over its rows, updates are scaled by the root mean
// square of the parameter and clipped to one of their own; no first moment.
#include <algorithm>
#include <cmath>

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
      if (const Shape& full = parameters.slices()[static_cast<std::size_t>(p)].full;
          full.rank() > 1) {
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
    const Sums n(parameters);
    return static_cast<std::int64_t>(n.means * sizeof(std::int64_t) +
                                     2 * n.parts * sizeof(SquareSum));
  }
  std::vector<comm::CollectiveCall> collectives(const nn::ParameterSet& parameters,
                                                const comm::Layout& layout, DType) const override {
    const Sums n(parameters);
    return {reduction_of<std::int64_t>(layout, n.means),
            reduction_of<SquareSum>(layout, 2 * n.parts)};
  }
  void update(const Update& u) const override {
    on_host(u, [&]<class P>(cpu::Stream& stream) { update_on<P>(stream, u); });
  }

 private:
  // In the workspace: sums of each matrix' rows and columns, then for each part the squares of the
  // weights and those of the direction.
  struct Sums {
    explicit Sums(const nn::ParameterSet& parameters) : parts(parameters.slices().size()) {
      for (const nn::PartSlice& s : parameters.slices()) {
        first.push_back(means);
        if (s.full.rank() > 1) means += static_cast<std::size_t>(s.full[0] + s.full[1]);
      }
    }
    std::size_t parts, means = 0;
    std::vector<std::size_t> first;  // of each part
  };

  template <class T>
  static kernels::MatrixRange<T> matrix(const Update& u, const nn::PartSlice& s,
                                        const PartRange& r) {
    return {r.first, r.count(), s.axis == 1 ? s.end - s.begin : s.full[1], u.gradients<T>(r),
            u.outcome->gradient_factor};
  }
  // Of this rank's rows and columns within those of a whole part.
  static std::int64_t first_row(const nn::PartSlice& s) { return s.axis == 0 ? s.begin : 0; }
  static std::int64_t first_column(const nn::PartSlice& s) { return s.axis == 1 ? s.begin : 0; }

  // What makes whole numbers of squares, none of whose sums exceeds that of the clipped gradient: a
  // power of two.
  static double scale_of(const Update& u) {
    const double norm = u.outcome->norm * u.outcome->gradient_factor * u.numbers->loss_scale;
    int exponent = 0;
    std::frexp(norm * norm, &exponent);
    return norm > 0 ? std::ldexp(1, 61 - exponent) : 1;
  }

  template <class T>
  void add_to_means(cpu::Stream& stream, const Update& u, const Sums& n,
                    std::span<std::int64_t> sums) const {
    for (const PartRange& r : u.shards.parts) {
      const auto part = static_cast<std::size_t>(r.part);
      const nn::PartSlice& s = u.parameters.slices()[part];
      if (!r.counted || s.full.rank() == 1) continue;
      std::int64_t* const rows = sums.data() + n.first[part];
      kernels::add_squares(stream, matrix<T>(u, s, r), scale_of(u), rows + first_row(s),
                           rows + s.full[0] + first_column(s));
    }
  }

  // The means of every matrix, which follow from the same sums on every rank.
  template <class T>
  void update_means(const Update& u, const Sums& n, std::span<const std::int64_t> sums) const {
    const auto& slices = u.parameters.slices();
    for (const PartState& state : u.shards.part_states) {
      const auto part = static_cast<std::size_t>(state.part);
      const Shape& full = slices[part].full;
      const bool rows = state.name == "adafactor.row";
      const std::int64_t* const sum =
          sums.data() + n.first[part] + (rows ? 0 : static_cast<std::size_t>(full[0]));
      T* const mean = static_cast<T*>(u.flat.state) + state.offset;
      const double scale = 1 / (scale_of(u) * static_cast<double>(full[rows ? 1 : 0]));
      for (std::int64_t i = 0; i < state.shape.elements(); ++i)
        mean[i] += (static_cast<T>(static_cast<double>(sum[i]) * scale) - mean[i]) *
                   static_cast<T>(u.numbers->update.correction1);
    }
  }

  template <class T>
  void divide_by_roots(cpu::Stream& stream, const Update& u) const {
    std::vector<std::pair<const T*, T>> rows(
        u.parameters.slices().size());  // of each matrix, and their mean
    for (const PartState& state : u.shards.part_states)
      if (state.name == "adafactor.row") {
        const T* const row = static_cast<const T*>(u.flat.state) + state.offset;
        double sum = 0;
        for (std::int64_t i = 0; i < state.shape.elements(); ++i) sum += row[i];
        rows[static_cast<std::size_t>(state.part)] = {
            row, static_cast<T>(
                     std::max(options_.eps1, sum / static_cast<double>(state.shape.elements())))};
      }
    for (const PartRange& r : u.shards.parts) {
      const auto part = static_cast<std::size_t>(r.part);
      const nn::PartSlice& s = u.parameters.slices()[part];
      if (const auto& [row, mean] = rows[part]; row)
        kernels::divide_by_root(stream, matrix<T>(u, s, r), row + first_row(s),
                                row + s.full[0] + first_column(s), mean, options_.eps1);
      else
        kernels::divide_by_root(
            stream, kernels::DivideByRootArgs<T>{r.count(), u.numbers->update.correction1,
                                                 options_.eps1, u.outcome->gradient_factor,
                                                 u.gradients<T>(r), u.state<T>(r, 0)});
    }
  }

  template <class P>
  void update_on(cpu::Stream& stream, const Update& u) const {
    using T = Accum<P>;
    const bool applied = u.outcome->applied != 0;
    const Sums n(u.parameters);
    const std::span<std::int64_t> means = clear_sums<std::int64_t>(u, n.means);
    const std::span<SquareSum> squares = clear_sums<SquareSum>(u, 2 * n.parts, means.size_bytes());
    if (applied) add_to_means<T>(stream, u, n, means);
    u.calls->next({means.data(), DType::i64, {std::ssize(means)}});
    if (applied) {
      update_means<T>(u, n, means);
      divide_by_roots<T>(stream, u);
      for (const PartRange& r : u.shards.parts) {
        const std::size_t part = 2 * static_cast<std::size_t>(r.part);
        add_squares(stream, r, u.weights<T>(r), squares[part]);
        add_squares(stream, r, u.gradients<T>(r), squares[part + 1]);
      }
    }
    all_reduce(u, squares);
    if (!applied) return;
    const UpdateNumbers& now = u.numbers->update;
    for (const PartRange& r : u.shards.parts) {
      const auto part = static_cast<std::size_t>(r.part);
      const auto elements = static_cast<double>(u.parameters.slices()[part].full.elements());
      const auto root_mean = [&](const SquareSum& sum) {
        return std::sqrt(kernels::total(sum) / elements);
      };
      const double scale = std::max(options_.eps2, root_mean(squares[2 * part])),
                   clip = std::max(1.0, root_mean(squares[2 * part + 1]) / options_.clip_threshold);
      descend<P>(stream, u, r, 0, r.count(), u.gradients<T>(r),
                 1 - (r.decay ? now.lr * weight_decay_ : 0),
                 std::min(now.lr, now.correction2) * scale / clip);
    }
  }

  config::AdafactorConfig options_;
  double weight_decay_;
};

}  // namespace

std::shared_ptr<const Rule> make_adafactor(const config::OptimizerConfig& o) {
  return std::make_shared<Adafactor>(o);
}

}  // namespace tfm::optim
