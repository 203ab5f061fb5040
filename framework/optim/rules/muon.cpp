// Muon (Jordan et al. 2024) as torch.optim.Muon has it, but in the parameters' type: the momentum
// of each matrix of the hidden layers is replaced by the nearest orthogonal matrix, about. All
// other parameters are updated as by AdamW.
//
// The ranks take one whole matrix each, the largest ones first. In such a round reduce-scatters
// bring the shards of every matrix together on its rank, and all-gathers bring the results to all;
// each exchanges a window of every matrix, so that the buffer is no larger than one of them.
#include "kernels/muon.h"

#include <algorithm>

#include "kernels/elementwise.h"
#include "optim/rules/adam.h"
#include "optim/rules/by_part.h"
#include "optim/rules/elementwise.h"
#include "optim/rules/newton_schulz.h"
#include "optim/rules/registry.h"

namespace tfm::optim {
namespace {

constexpr int kMatrices = 1;  // the group of the matrices

// A round exchanges as many elements of each of its matrices at once.
std::int64_t window(const PartRound& r) {
  return round_up(ceil_div(r.elements, std::ssize(r.parts)), nn::ParameterSet::kGranule);
}
// Of the windows of all ranks, and of this rank's own matrix.
std::int64_t exchanged(const PartRound& r) {
  return std::ssize(r.parts) * window(r) + round_up(r.elements, nn::ParameterSet::kGranule);
}
// f(first, count) for each window.
template <class F>
void each_window(const PartRound& r, F&& f) {
  for (std::int64_t first = 0; first < r.elements; first += window(r))
    f(first, std::min(window(r), r.elements - first));
}

std::int64_t elements_of(const nn::ParameterSet& p, int part) {
  return p.slices()[static_cast<std::size_t>(part)].full.elements();
}
std::int64_t short_side(const nn::ParameterSet& p, int part) {
  const Shape& full = p.slices()[static_cast<std::size_t>(part)].full;
  return std::min(full[0], full[1]);
}

class Muon final : public Rule {
 public:
  explicit Muon(const config::OptimizerConfig& o) : config_(o) {}

  std::vector<ParameterGroup> groups() const override { return {kAdamGroup, {{"muon.momentum"}}}; }
  int group_of(const nn::ParameterSpec& spec) const override { return spec.hidden ? kMatrices : 0; }
  // Ranks take turns at having the largest.
  std::vector<PartRound> rounds(const nn::ParameterSet& parameters,
                                const comm::Layout& layout) const override {
    const int ranks = layout.size(layout.stage());
    std::vector<int> parts;
    for (int p = 0; p < static_cast<int>(parameters.slices().size()); ++p)
      if (parameters.spec(parameters.slices()[static_cast<std::size_t>(p)].parameter).hidden)
        parts.push_back(p);
    std::ranges::stable_sort(parts, std::greater{},
                             [&](int p) { return elements_of(parameters, p); });
    std::vector<PartRound> rounds;
    for (std::size_t first = 0; first < parts.size(); first += static_cast<std::size_t>(ranks)) {
      PartRound round{.parts = std::vector<int>(static_cast<std::size_t>(ranks), -1),
                      .elements = elements_of(parameters, parts[first])};
      std::copy(parts.begin() + static_cast<std::ptrdiff_t>(first),
                parts.begin() + static_cast<std::ptrdiff_t>(std::min(
                                    parts.size(), first + static_cast<std::size_t>(ranks))),
                round.parts.begin());
      if (rounds.size() % 2 == 1) std::ranges::reverse(round.parts);
      rounds.push_back(std::move(round));
    }
    return rounds;
  }
  UpdateNumbers numbers(std::int64_t update, double lr) const override {
    return adam_numbers(config_, update, lr);
  }
  std::int64_t workspace_bytes(const nn::ParameterSet& parameters, const comm::Layout& layout,
                               DType dtype) const override {
    std::int64_t most = 0;
    for (const PartRound& r : rounds(parameters, layout)) {
      std::int64_t side = 0;
      for (const int p : r.parts)
        if (p >= 0) side = std::max(side, short_side(parameters, p));
      most = std::max(most, exchanged(r) * size_of(accum_type(dtype)) +
                                newton_schulz_bytes(r.elements, side, dtype));
    }
    return most;
  }
  std::int64_t scratch_bytes(const nn::ParameterSet&) const override {
    return kernels::part_update_scratch();
  }
  std::vector<comm::CollectiveCall> collectives(const nn::ParameterSet& parameters,
                                                const comm::Layout& layout,
                                                DType dtype) const override {
    std::vector<comm::CollectiveCall> all;
    for (const PartRound& r : rounds(parameters, layout))
      for (const comm::Collective kind :
           {comm::Collective::reduce_scatter, comm::Collective::all_gather})
        each_window(r, [&](std::int64_t, std::int64_t count) {
          all.push_back({kind, layout.stage(),
                         layout.size(layout.stage()) * count * size_of(accum_type(dtype)),
                         comm::Purpose::optimizer});
        });
    return all;
  }
  // In a round all ranks wait for the largest.
  std::vector<graph::Work::Product> products(const nn::ParameterSet& parameters,
                                             const comm::Layout& layout) const override {
    std::vector<graph::Work::Product> all;
    for (const PartRound& r : rounds(parameters, layout)) {
      const int part = *std::ranges::find_if(
          r.parts, [&](int p) { return p >= 0 && elements_of(parameters, p) == r.elements; });
      const std::int64_t side = short_side(parameters, part), other = r.elements / side,
                         steps = config_.muon.ns_steps;
      all.insert(
          all.end(),
          {{side, side, other, steps}, {side, side, side, steps}, {side, other, side, steps}});
    }
    return all;
  }
  double further_accesses() const override { return 7; }
  void update(const Update& u) const override {
    on_stream(u, [&]<class P>(auto& stream) { update_matrices<P>(stream, u); });
    update_elements(
        u, kernels::AdamRule{config_.beta1, config_.beta2, config_.eps, config_.weight_decay});
  }

 private:
  // Where an update is not applied, gradients are what they are, and nothing follows from them.
  template <class P, class Stream>
  void update_matrices(Stream& stream, const Update& u) const {
    using T = Accum<P>;
    const auto matrices =
        part_elements<P>(u, [](const PartRange& r) { return r.group == kMatrices; });
    kernels::momentum(stream, kernels::MomentumArgs<T, P>{matrices, config_.muon.momentum,
                                                          config_.muon.nesterov, u.outcome});
    for (const PartRound& round : u.shards.rounds) orthogonalize_round<T>(stream, u, round);
    const kernels::MatrixRate rate{config_.muon.lr / config_.lr, config_.weight_decay,
                                   config_.muon.adjust_lr == config::AdjustLr::match_rms_adamw};
    kernels::descend(stream, kernels::DescendArgs<kernels::MatrixRate, T, P>{matrices, rate,
                                                                             u.numbers, u.outcome});
  }

  // In place of the gradients.
  template <class T, class Stream>
  void orthogonalize_round(Stream& stream, const Update& u, const PartRound& round) const {
    const std::int64_t ranks = std::ssize(round.parts), rank = u.mesh.stage().rank();
    T *const all = static_cast<T*>(u.flat.workspace), *const own = all + ranks * window(round);
    const auto tensor = [](T* data, std::int64_t n) { return Tensor{data, dtype_of<T>, {n}}; };
    each_window(round, [&](std::int64_t first, std::int64_t count) {
      kernels::fill(stream, kernels::FillArgs<T>{ranks * count, T(0), all});
      each_piece(u, round, first, count, [&](const PartRange& r, const Piece& p) {
        if (r.counted)
          copy(stream, p, u.flat.gradients_of<T>(r) + p.own, p.own_stride, all + p.other,
               p.other_stride);
      });
      u.calls->next(tensor(all, ranks * count), tensor(own + first, count));
    });
    if (const int part = round.parts[static_cast<std::size_t>(rank)]; part >= 0) {
      const Shape& full = u.parameters.slices()[static_cast<std::size_t>(part)].full;
      orthogonalize(&stream, u.dtype, own, full[0], full[1], config_.muon.ns_steps,
                    all + exchanged(round));
    }
    each_window(round, [&](std::int64_t first, std::int64_t count) {
      u.calls->next(tensor(own + first, count), tensor(all, ranks * count));
      each_piece(u, round, first, count, [&](const PartRange& r, const Piece& p) {
        copy(stream, p, all + p.other, p.other_stride, u.flat.gradients_of<T>(r) + p.own,
             p.own_stride);
      });
    });
  }

  // Rows of this rank's elements of a range, and where they lie in the exchanged windows.
  struct Piece {
    std::int64_t rows = 0, cols = 0;
    std::int64_t own = 0, own_stride = 0;  // own: element of the range
    std::int64_t other = 0, other_stride = 0;
  };
  template <class T, class Stream>
  static void copy(Stream& stream, const Piece& p, const T* from, std::int64_t from_stride, T* to,
                   std::int64_t to_stride) {
    if (p.rows == 1)
      kernels::copy(stream, kernels::CopyArgs<T>{p.cols, from, to});
    else
      kernels::copy_rows(
          stream, kernels::CopyRowsArgs<T>{p.rows, p.cols, from, from_stride, to, to_stride});
  }

  // f(range, piece) for this rank's elements of the round's matrices within [first, first +
  // window).
  template <class F>
  static void each_piece(const Update& u, const PartRound& round, std::int64_t first,
                         std::int64_t window, F&& f) {
    for (const PartRange& r : u.shards.parts) {
      const auto rank = std::ranges::find(round.parts, r.part);
      if (rank == round.parts.end()) continue;
      const std::int64_t to = (rank - round.parts.begin()) * window - first;
      Piece some;  // runs of one length, one below the other
      each_run(slice_of(u, r), r, [&](std::int64_t whole, std::int64_t flat, std::int64_t count) {
        const std::int64_t begin = std::max(whole, first),
                           end = std::min(whole + count, first + window);
        if (begin >= end) return;
        const Piece run{1,           end - begin, flat - r.begin + begin - whole,
                        end - begin, to + begin,  slice_of(u, r).full[1]};
        if (some.cols == run.cols && some.other + some.rows * some.other_stride == run.other) {
          ++some.rows;
          return;
        }
        if (some.rows > 0) f(r, some);
        some = run;
      });
      if (some.rows > 0) f(r, some);
    }
  }

  config::OptimizerConfig config_;
};

}  // namespace

std::shared_ptr<const Rule> make_muon(const config::OptimizerConfig& o) {
  return std::make_shared<Muon>(o);
}

}  // namespace tfm::optim
